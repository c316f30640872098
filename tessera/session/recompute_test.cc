// Cells that are recomputed: the same results, to the last bit, in less memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/nn/container.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::session {
namespace {

using ir::Value;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Convolution, batch normalisation, dropout: all that recomputation could get wrong.
class Block : public nn::Cell {
 public:
  using Cell::construct;
  Value construct(Value x) override { return ops::relu(x + dropout_(ops::tanh(norm_(conv_(x))))); }

 private:
  nn::Conv2d& conv_ = child<nn::Conv2d>("conv", 4, 4, nn::Conv2dOptions{.kernel = 3, .stride = 1});
  nn::BatchNorm2d& norm_ = child<nn::BatchNorm2d>("norm", 4);
  nn::Dropout& dropout_ = child<nn::Dropout>("dropout", 0.75);
};

class Network : public nn::Cell {
 public:
  using Cell::construct;
  Value construct(Value x) override { return fc(ops::reduce_mean(second(first(x)), {2, 3})); }

  Block& first = child<Block>("first");
  Block& second = child<Block>("second");
  nn::Dense& fc = child<nn::Dense>("fc", 4, 3);
};

ir::Graph train_step(Network& network, DType dtype) {
  nn::set_parameter_dtype(network, dtype);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<InputSpec> inputs = {{"x", {dtype, {5, 4, 6, 6}}}, {"label", {DType::kI32, {5}}}};
  return trace_train_step(network, &loss, optimizer, inputs, {.training = true, .seed = 3});
}

std::map<std::string, Tensor> random_inputs(const ir::Graph& graph) {
  std::map<std::string, Tensor> inputs;
  uint64_t stream = 0;
  for (const auto& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    std::vector<double> values;
    const RandomStream random{.seed = 5, .stream = ++stream};
    for (int64_t i = 0; i < type.shape.num_elements(); ++i) {
      values.push_back(is_floating(type.dtype) ? 0.5 + random_uniform(random, static_cast<uint64_t>(i)) : 1);
    }
    inputs[input.name] = Tensor::of(type.shape, std::span<const double>(values)).cast(type.dtype);
  }
  return inputs;
}

class Recompute : public testing::TestWithParam<DType> {};

TEST_P(Recompute, ChangesNoBitOfLossParametersAndStatistics) {
  Network kept;
  Network recomputed;
  recomputed.first.recompute();
  recomputed.second.recompute();
  const auto expected_step = train_step(kept, GetParam());
  const auto step = train_step(recomputed, GetParam());
  const auto inputs = random_inputs(step);
  for (const bool reference : {true, false}) {
    for (const bool debug : {true, false}) {
      const SessionOptions options{
          .reference_kernels = reference, .debug = debug, .fusions = compiler::Fusions::none()};
      const auto expected = evaluate(expected_step, inputs, options);
      const auto actual = evaluate(step, inputs, options);
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        EXPECT_TRUE(bit_equal(actual.at(name), tensor)) << name << (reference ? ", reference kernels" : "");
      }
    }
  }
}

TEST_P(Recompute, ByAMemoryLimitChangesNoBitEither) {
  Network network;
  const auto step = train_step(network, GetParam());
  const auto inputs = random_inputs(step);
  for (const bool reference : {true, false}) {
    SessionOptions options{.reference_kernels = reference, .fusions = compiler::Fusions::none()};
    const auto expected = evaluate(step, inputs, options);
    const auto context = cluster::single_context(1);
    const Session session(*context, options);
    const auto free = compiler::compile(step, mesh::Mesh({{"data", 1}}), {}, 0, session.kernels(),
                                        {.fusions = compiler::Fusions::none()})
                          .schedule;
    // How much less is enough depends on the kernels' scratch memory, and so on the processor.
    options.memory_limit_bytes = free.arena_bytes - free.peak_bytes / 20;
    const auto actual = evaluate(step, inputs, options);
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(bit_equal(actual.at(name), tensor)) << name;
  }
}

TEST_P(Recompute, KeepsWhatABlockReturnsAndDropsWhatIsInside) {
  Network network;
  network.first.recompute();
  const auto compiled = compiler::plan_ranks(train_step(network, GetParam()), mesh::Mesh({{"data", 1}}), {});
  std::vector<std::string> again;
  for (ir::NodeId n = 0; n < compiled.logical.num_nodes(); ++n) {
    const auto& node = compiled.logical.node(n);
    if (node.again) again.push_back(compiled.logical.node_name(n));
  }
  std::sort(again.begin(), again.end());
  // relu's gradient reads its result, which the second block reads, too; what only the result depends on is not needed.
  EXPECT_THAT(again,
              testing::ElementsAre("batch_norm \"first.norm\"", "batch_norm_mean \"first.norm\"",
                                   "batch_norm_variance \"first.norm\"", "conv2d \"first.conv\"", "tanh \"first\""));
}

INSTANTIATE_TEST_SUITE_P(DTypes, Recompute, testing::Values(DType::kF32, DType::kF64),
                         [](const auto& info) { return info.param == DType::kF32 ? "f32" : "f64"; });

// Two products of matrices, split over two ranks: the second is a sum over the ranks, which the block goes on with.
class SplitBlock : public nn::Cell {
 public:
  SplitBlock() {
    up_.shard("matmul", {{1, 1}, {2, 1}});
    down_.shard("matmul", {{1, 2}, {1, 2}});
  }
  using Cell::construct;
  Value construct(Value x) override { return ops::square(ops::tanh(down_(ops::tanh(up_(x))))); }

 private:
  nn::Dense& up_ = child<nn::Dense>("up", 4, 8);
  nn::Dense& down_ = child<nn::Dense>("down", 8, 3);
};

struct SplitRun {
  std::map<std::string, Tensor> values;
  int64_t num_collectives = 0;
};

SplitRun run_split(cluster::Context& context, const std::optional<nn::RecomputeOptions>& options) {
  SplitBlock block;
  if (options) block.recompute(*options);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<InputSpec> inputs = {{"x", {DType::kF32, {5, 4}}}, {"label", {DType::kI32, {5}}}};
  const auto graph = trace_train_step(block, &loss, optimizer, inputs, {.training = true});
  const auto values = random_inputs(graph);
  Session session(context, {.fusions = compiler::Fusions::none(), .verification = compiler::Verification::kAllRanks});
  for (const auto& input : graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) session.declare(input.name, graph.type(input.value));
  }
  for (const auto& name : session.names()) session.set_value(name, values.at(name));
  const auto step = session.compile(graph, mesh::Mesh({{"model", 2}}));
  for (const char* name : {"x", "label"}) copy_elements(values.at(name).view(), step->input(name));
  step->run();
  SplitRun result;
  result.values["loss"] = Tensor::copy_of(step->output("loss"));
  for (const auto& name : session.names()) result.values[name] = session.value(name);
  const auto& local = step->compiled().local;
  for (ir::NodeId n = 0; n < local.num_nodes(); ++n) {
    const auto& op = local.node(n).op;
    result.num_collectives += op.starts_with("all_") || op == "reduce_scatter" ? 1 : 0;
  }
  return result;
}

TEST(Recompute, RepeatsCollectivesOrKeepsWhatTheyResultIn) {
  run_ranks(2, [](cluster::Context& context) {
    const auto expected = run_split(context, std::nullopt);
    const auto repeating = run_split(context, nn::RecomputeOptions{});
    const auto keeping = run_split(context, nn::RecomputeOptions{.mp_comm_recompute = false});
    EXPECT_EQ(repeating.num_collectives, expected.num_collectives + 1);
    EXPECT_EQ(keeping.num_collectives, expected.num_collectives);
    for (const auto& [name, tensor] : expected.values) {
      EXPECT_TRUE(bit_equal(repeating.values.at(name), tensor)) << name;
      EXPECT_TRUE(bit_equal(keeping.values.at(name), tensor)) << name;
    }
  });
}

TEST(Recompute, IsConfiguredOnce) {
  Network network;
  network.first.recompute({.mp_comm_recompute = false});
  EXPECT_THAT([&] { network.first.recompute(); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("cell \"first\" cannot be recomputed: \"first\" is already, with all that is below it")));
  EXPECT_THAT([&] { network.recompute(); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"first\" is already")));
  network.second.recompute();
  EXPECT_THAT([&] { network.second.children()[0].second->recompute(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cell \"second.conv\" cannot be recomputed: \"second\" is")));
}

TEST(Recompute, MarksAreInTheTextOfTheGraph) {
  Network network;
  network.first.recompute();
  network.second.recompute({.mp_comm_recompute = false, .parallel_optimizer_comm_recompute = true});
  const auto text = ir::print(train_step(network, DType::kF32));
  EXPECT_THAT(text, HasSubstr(" recompute 1 @ first.conv\n"));
  EXPECT_THAT(text, HasSubstr(" recompute 2 keep_collectives gather_parameters @ second.norm\n"));
  EXPECT_EQ(ir::print(ir::parse(text)), text);
}

}  // namespace
}  // namespace tessera::session
