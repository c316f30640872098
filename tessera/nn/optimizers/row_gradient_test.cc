#include "tessera/nn/optimizers/row_gradient.h"

#include <gtest/gtest.h>

#include "tessera/ops/functions/functions.h"
#include "tessera/ops/verify.h"

namespace tessera::nn {
namespace {

using ir::Value;

// Gradients of a table [9,2] that has been looked up.
class RowGradients : public testing::Test {
 protected:
  Value input(const std::string& name, DType dtype, const Shape& shape) {
    return graph_.add_input(ir::InputKind::kInput, name, {dtype, shape});
  }
  // Of rows that `ids` name, as the gradient of a gather is.
  Value of_lookup(const std::string& ids, const Shape& shape, DType dtype = DType::kF32) {
    Shape rows = shape;
    rows.push_back(2);
    const Value table = graph_.add_input(ir::InputKind::kParameter, "table", {DType::kF32, {9, 2}});
    return ops::scatter_add(ops::zeros_like(ops::cast(table, dtype)), input(ids, DType::kI32, shape),
                            input("d_" + ids, dtype, rows));
  }
  Value number() { return input("number", DType::kF32, {}); }

  ir::Graph graph_{"gradients"};
};

TEST_F(RowGradients, AreOfOneLookupOfAnyDims) {
  const Value gradient = of_lookup("ids", {2, 3});
  EXPECT_EQ(num_looked_up(gradient), 6);
  const auto rows = row_gradient_of(gradient);
  EXPECT_EQ(rows.ids.type(), (Type{DType::kI32, {6}}));
  EXPECT_EQ(rows.rows.type(), (Type{DType::kF32, {6, 2}}));
}

TEST_F(RowGradients, AreSeenThroughCastsAndNumbers) {
  const Value scaled = ops::cast(of_lookup("ids", {4}, DType::kBF16), DType::kF32) * number() / 3.0;
  EXPECT_EQ(num_looked_up(ops::neg(scaled)), 4);
  const auto rows = row_gradient_of(ops::mul(number(), scaled));
  EXPECT_EQ(rows.rows.type(), (Type{DType::kF32, {4, 2}}));
  ops::verify_or_throw(graph_);
}

TEST_F(RowGradients, AreJoinedWhereATableIsLookedUpRepeatedly) {
  const Value sum = of_lookup("ids", {2, 3}) + of_lookup("others", {5}) * 2.0;
  EXPECT_EQ(num_looked_up(sum), 11);
  const auto rows = row_gradient_of(sum);
  EXPECT_EQ(rows.ids.shape(), (Shape{11}));
  EXPECT_EQ(rows.rows.shape(), (Shape{11, 2}));
}

TEST_F(RowGradients, AreNoneOfAnythingElse) {
  const Value whole = input("whole", DType::kF32, {9, 2});
  EXPECT_EQ(num_looked_up(whole), std::nullopt);
  EXPECT_EQ(num_looked_up(of_lookup("ids", {4}) + whole), std::nullopt);
  EXPECT_EQ(num_looked_up(ops::maximum(of_lookup("ids", {4}), 0.0)), std::nullopt);
  EXPECT_EQ(num_looked_up(of_lookup("ids", {4}) * input("columns", DType::kF32, {2})), std::nullopt);
  EXPECT_EQ(num_looked_up(ops::scatter_add(whole, input("ids", DType::kI32, {4}), input("rows", DType::kF32, {4, 2}))),
            std::nullopt);
  const Value columns = ops::scatter_add(ops::zeros_like(whole), input("columns_at", DType::kI32, {3}),
                                         input("three", DType::kF32, {9, 3}), 1);
  EXPECT_EQ(num_looked_up(columns), std::nullopt);
  EXPECT_EQ(lookups_of(columns), std::nullopt);
}

TEST_F(RowGradients, AreCountedByRow) {
  const auto lookups = lookups_of(of_lookup("ids", {2, 3}) * 0.5 + of_lookup("others", {5}));
  ASSERT_TRUE(lookups);
  EXPECT_EQ(lookups->type(), (Type{DType::kF32, {9}}));
}

TEST_F(RowGradients, AreCountedOverRanksToo) {
  const ops::RankGroup ranks{.name = "world", .ranks = {0, 1}, .own = 0};
  const Value sum = ops::all_reduce(of_lookup("ids", {4}), ranks);
  EXPECT_EQ(num_looked_up(sum), std::nullopt);
  const auto lookups = lookups_of(ops::div(sum, 2.0));
  ASSERT_TRUE(lookups);
  EXPECT_EQ(graph_.node(graph_.info(lookups->id()).node).op, "all_reduce");
  EXPECT_EQ(lookups_of(ops::all_reduce(of_lookup("others", {4}), ranks, mesh::Reduction::kMax)), std::nullopt);
}

TEST_F(RowGradients, KnowWhetherTheBatchAloneNamesTheirRows) {
  EXPECT_TRUE(looks_up_data_only(of_lookup("ids", {4})));
  const Value state = graph_.add_input(ir::InputKind::kState, "state", {DType::kI32, {4}});
  const Value zeros = ops::zeros_like(input("whole", DType::kF32, {9, 2}));
  const Value computed = ops::add(state, ops::range(graph_, 0, 4));
  EXPECT_FALSE(looks_up_data_only(ops::scatter_add(zeros, computed, input("rows", DType::kF32, {4, 2}))));
}

}  // namespace
}  // namespace tessera::nn
