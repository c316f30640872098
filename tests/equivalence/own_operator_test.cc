// An operator that a program adds by itself: it computes, has gradients, and is split as its definition says; what
// cannot work is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/testing/run_ranks.h"

namespace tessera {
namespace {

using nn::Value;
using ::testing::HasSubstr;

// Per pair of a row of x and a row of centers, the squares of the differences, added up.
void run_distance(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& centers = args.inputs[1];
  const TensorView& out = args.outputs[0];
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    for (int64_t j = 0; j < centers.shape[0]; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < x.shape[1]; ++k) {
        const double difference = x.as<double>()[i * x.strides[0] + k * x.strides[1]] -
                                  centers.as<double>()[j * centers.strides[0] + k * centers.strides[1]];
        sum += difference * difference;
      }
      out.as<double>()[i * out.strides[0] + j * out.strides[1]] = sum;
    }
  }
}

std::optional<PreparedKernel> prepare_distance(const KernelRequest& request) {
  if (request.outputs[0].dtype != DType::kF64) return std::nullopt;
  return PreparedKernel{.name = "own.squared_distance", .run = run_distance};
}

ops::OpDef squared_distance() {
  return {.name = "squared_distance",
          .doc = "The squared distances of the rows of x [n,d] from those of centers [k,d]: [n,k].",
          .inputs = {"x", "centers"},
          .infer = [](const Attributes&, std::span<const Type> inputs) -> std::vector<Type> {
            ops::require_ndim(inputs[0], 2, "x");
            ops::require_type(inputs[1], {inputs[0].dtype, {inputs[1].shape[0], inputs[0].shape[1]}}, "centers");
            return {{inputs[0].dtype, {inputs[0].shape[0], inputs[1].shape[0]}}};
          },
          .gradient = [](const ops::GradientContext& c) -> std::vector<Value> {
            const Value dy = c.cotangent(0);
            const Value x = c.inputs[0];
            const Value centers = c.inputs[1];
            const Value of_columns = ops::reshape(ops::reduce_sum(dy, {0}), {-1, 1});
            return {2 * (x * ops::reduce_sum(dy, {1}, /*keep_dims=*/true) - ops::matmul(dy, centers)),
                    2 * (centers * of_columns - ops::matmul(dy, x, /*transpose_a=*/true))};
          },
          .rule = [](const Attributes&, std::span<const Type>,
                     std::span<const Type>) { return ops::parse_rule("n d, k d -> n k"); }};
}

struct Prototypes : nn::Cell {
  nn::Parameter& centers = parameter("centers", {DType::kF64, {4, 6}}, nn::normal(0.5));
  using nn::Cell::construct;
  Value construct(Value x) override { return ops::apply1("squared_distance", {x, centers}); }
};

Tensor some_numbers(const Shape& shape, uint64_t stream) {
  Tensor made(DType::kF64, shape);
  auto values = made.values<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 5, .stream = stream}, i);
  return made;
}

// The losses of six steps, and the centers behind them.
std::vector<double> train(int ranks, const mesh::Strategy& strategy, train::ParallelMode mode) {
  std::vector<double> seen;
  run_ranks(ranks, [&](cluster::Context& context) {
    Prototypes network;
    if (!strategy.empty()) network.shard("squared_distance", strategy);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.5});
    train::Model model(context, network, &loss, &optimizer, {.parallel_mode = mode, .full_batch = true, .seed = 3});
    std::vector<double> mine;
    for (int step = 0; step < 6; ++step) {
      mine.push_back(model.train_step({some_numbers({8, 6}, 1).view(), some_numbers({8, 4}, 2).view()}, 8));
    }
    const auto centers = model.value("centers").to_doubles();
    mine.insert(mine.end(), centers.begin(), centers.end());
    if (context.rank() == 0) seen = mine;
  });
  return seen;
}

class OwnOperator : public ::testing::Test {
 protected:
  static std::string refusal(ops::OpDef def, KernelFactory kernel) {
    try {
      ops::add_operator(std::move(def), std::move(kernel));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }

  static void SetUpTestSuite() {
    // These refusals are those of a program that has used no operator yet.
    auto def = squared_distance();
    def.name = "squared distance";
    refusals.push_back(refusal(def, prepare_distance));
    def.name = "squared_distance";
    refusals.push_back(refusal(def, nullptr));
    def.infer = nullptr;
    refusals.push_back(refusal(def, prepare_distance));
    def = squared_distance();
    def.update = true;
    refusals.push_back(refusal(def, prepare_distance));
    def = squared_distance();
    def.name = "matmul";
    refusals.push_back(refusal(def, prepare_distance));
    ops::add_operator(squared_distance(), prepare_distance);
    refusals.push_back(refusal(squared_distance(), prepare_distance));
  }

  static inline std::vector<std::string> refusals;
};

TEST_F(OwnOperator, IsRefusedWhereItCannotWork) {
  EXPECT_THAT(refusals, ::testing::ElementsAre(HasSubstr("its name must have letters, digits and underscores only"),
                                               HasSubstr("a kernel must be given"), HasSubstr("infer must be given"),
                                               HasSubstr("neither updates parameters nor communicates"),
                                               HasSubstr("operator matmul is defined twice"),
                                               HasSubstr("operator squared_distance is defined twice")));
}

TEST_F(OwnOperator, ComesTooLateWhereOperatorsHaveBeenUsed) {
  ASSERT_NE(ops::OpRegistry::instance().find("squared_distance"), nullptr);
  auto def = squared_distance();
  def.name = "another_distance";
  EXPECT_THAT(refusal(def, prepare_distance), HasSubstr("at the beginning of main, before cluster::run"));
  EXPECT_EQ(ops::OpRegistry::instance().find("another_distance"), nullptr);
}

TEST_F(OwnOperator, ComputesWhatItsKernelDoes) {
  const auto context = cluster::single_context(1);
  Prototypes network;
  train::Model model(*context, network, nullptr, nullptr);
  model.set_value("centers", Tensor::zeros({DType::kF64, {4, 6}}));
  const Tensor result = model.predict({Tensor::full({DType::kF64, {3, 6}}, 2)});
  EXPECT_EQ(result.type(), (Type{DType::kF64, {3, 4}}));
  EXPECT_THAT(result.to_doubles(), ::testing::Each(24.0));
}

TEST_F(OwnOperator, IsRefusedWhereItsKernelDeclines) {
  const auto context = cluster::single_context(1);
  struct OfHalves : nn::Cell {
    using nn::Cell::construct;
    Value construct(Value x, Value y) override { return ops::apply1("squared_distance", {x, y}); }
  } network;
  train::Model model(*context, network, nullptr, nullptr);
  const auto x = Tensor::zeros({DType::kF32, {3, 6}});
  try {
    model.predict({x, x});
    ADD_FAILURE() << "was computed";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no kernel of this build computes squared_distance on (f32[3,6], f32[3,6])"));
  }
}

// A step of SGD at rate 1 takes the gradient away: of the distances times weights, added up.
TEST_F(OwnOperator, HasTheGradientOfFiniteDifferences) {
  const auto context = cluster::single_context(1);
  struct SumLoss : nn::Loss {
    using nn::Cell::construct;
    Value construct(Value distances, Value weights) override { return ops::reduce_sum(distances * weights); }
  } loss;
  Prototypes network;
  nn::SGD optimizer({.learning_rate = 1});
  train::Model model(*context, network, &loss, &optimizer);
  const Tensor centers = some_numbers({4, 6}, 3);
  const Tensor x = some_numbers({8, 6}, 1);
  const Tensor weights = some_numbers({8, 4}, 2);
  model.set_value("centers", centers);
  model.train_step({x.view(), weights.view()}, 8);
  const auto after = model.value("centers").to_doubles();
  const auto sum_at = [&](size_t element, double moved_by) {
    const Tensor moved = centers.clone();
    moved.values<double>()[element] += moved_by;
    model.set_value("centers", moved);
    const auto distances = model.predict({x}).to_doubles();
    return std::inner_product(distances.begin(), distances.end(), weights.values<double>().begin(), 0.0);
  };
  constexpr double kStep = 1e-4;
  for (size_t i = 0; i < after.size(); i += 5) {
    const double slope = (sum_at(i, kStep) - sum_at(i, -kStep)) / (2 * kStep);
    EXPECT_NEAR(centers.to_doubles()[i] - after[i], slope, 1e-4) << i;
  }
}

TEST_F(OwnOperator, IsSplitAsItsRuleSays) {
  const auto alone = train(1, {}, train::ParallelMode::kStandAlone);
  ASSERT_EQ(alone.size(), 6 + 24U);
  EXPECT_LT(alone[5], alone[0]);
  const std::vector<mesh::Strategy> strategies = {
      {{4, 1}, {1, 1}}, {{1, 1}, {4, 1}}, {{1, 2}, {1, 2}}, {{2, 1}, {2, 1}}, {{1, 3}, {2, 3}}};
  const std::vector<int> ranks = {4, 4, 2, 4, 6};
  for (size_t s = 0; s < strategies.size(); ++s) {
    EXPECT_THAT(train(ranks[s], strategies[s], train::ParallelMode::kSemiAuto),
                ::testing::Pointwise(::testing::DoubleNear(1e-5), alone))
        << s;
  }
  EXPECT_THAT(train(3, {}, train::ParallelMode::kAutomatic), ::testing::Pointwise(::testing::DoubleNear(1e-5), alone));
}

}  // namespace
}  // namespace tessera
