// Claims about what a search chooses from: which strategies there are, and that their costs are those of arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compiler/search/choices.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::InputKind;
using mesh::Strategy;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

Graph product() {
  Graph graph("product");
  const auto x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {8, 6}});
  const auto w = graph.add_input(InputKind::kParameter, "w", {DType::kF32, {6, 4}});
  graph.add_output("y", ops::matmul(x, w));
  return graph;
}

TEST(Candidates, AreAllProductsThatDivideTheRanks) {
  EXPECT_THAT(possible_strategies(product(), 0, 2), ElementsAre(Strategy{{1, 1}, {1, 1}}, Strategy{{1, 1}, {1, 2}},
                                                                Strategy{{1, 2}, {2, 1}}, Strategy{{2, 1}, {1, 1}}));
  EXPECT_THAT(possible_strategies(product(), 0, 2, {.use_all_ranks = true}),
              UnorderedElementsAre(Strategy{{1, 1}, {1, 2}}, Strategy{{1, 2}, {2, 1}}, Strategy{{2, 1}, {1, 1}}));
}

TEST(Candidates, LeaveNoRankWithoutElementsUnlessAsked) {
  // 8 parts fit the first dim only; 4 fit k and n, too.
  EXPECT_EQ(possible_strategies(product(), 0, 8).size(), 18);
  EXPECT_EQ(possible_strategies(product(), 0, 8, {.allow_empty_parts = true}).size(), 20);
  EXPECT_TRUE(possible_strategies(product(), 0, 997, {.use_all_ranks = true}).empty());
}

TEST(Candidates, OfAnOperatorThatCannotBeSplit) {
  Graph graph("sorted");
  const auto x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {}});
  graph.add_output("y", ops::relu(x));
  EXPECT_THAT(possible_strategies(graph, 0, 4), ElementsAre(Strategy{{}}));
  EXPECT_TRUE(possible_strategies(graph, 0, 4, {.use_all_ranks = true}).empty());
}

TEST(Candidates, EachIsAcceptedByThePlanner) {
  const Graph graph = product();
  for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) {
    for (const auto& strategy : possible_strategies(graph, 0, ranks, {.allow_empty_parts = true})) {
      EXPECT_NO_THROW(cost_of_strategy(graph, 0, strategy, ranks)) << mesh::to_string(strategy);
    }
  }
}

TEST(Costs, AreThoseOfTheLargestPart) {
  const Graph graph = product();
  const auto whole = cost_of_strategy(graph, 0, {{1, 1}, {1, 1}}, 4);
  EXPECT_EQ(whole.flops, 2.0 * 8 * 6 * 4);
  EXPECT_EQ(whole.bytes, 4.0 * (48 + 24 + 32));
  EXPECT_EQ(whole.received_bytes, 0);
  const auto rows = cost_of_strategy(graph, 0, {{3, 1}, {1, 1}}, 3);  // 3, 3 and 2 rows
  EXPECT_EQ(rows.flops, 2.0 * 3 * 6 * 4);
  EXPECT_EQ(rows.bytes, 4.0 * (18 + 24 + 12));
  EXPECT_EQ(rows.received_bytes, 0);
}

TEST(Costs, OfAContractedSplitAreItsAllReduce) {
  const auto cost = cost_of_strategy(product(), 0, {{1, 2}, {2, 1}}, 2);
  EXPECT_EQ(cost.flops, 2.0 * 8 * 3 * 4);
  EXPECT_EQ(cost.received_bytes, 2 * (4 * 32) / 2);
}

TEST(Costs, OfASplitImageAreItsHalos) {
  Graph graph("convolution");
  const auto x = graph.add_input(InputKind::kInput, "x", {DType::kF32, {1, 2, 8, 8}});
  const auto w = graph.add_input(InputKind::kParameter, "w", {DType::kF32, {2, 2, 3, 3}});
  graph.add_output("y", ops::conv2d(x, w));
  const auto cost = cost_of_strategy(graph, 0, {{1, 1, 2, 1}, {1, 1, 1, 1}}, 2);
  EXPECT_EQ(cost.received_bytes, 4 * 2 * 8);  // one row of 8 pixels of 2 channels
}

}  // namespace
}  // namespace tessera::compiler
