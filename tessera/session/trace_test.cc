#include "tessera/session/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/nn/container.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"

namespace tessera::session {
namespace {

using ir::Value;
using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

const std::vector<InputSpec> kRows = {{"x", {DType::kF32, {4, 6}}}, {"label", {DType::kI32, {4}}}};

nn::Parameter parameter(const std::string& name, const Shape& shape) {
  return {.name = name, .type = {DType::kF64, shape}, .init = {}};
}

Ints all_axes(Value v) {
  Ints axes;
  for (int axis = 0; axis < v.ndim(); ++axis) axes.push_back(axis);
  return axes;
}

Value sum(Value v) { return ops::reduce_sum(v, all_axes(v)); }

TEST(Trace, ForwardHasTheNetworksResult) {
  const auto network = nn::mlp(3, 6, 5);
  const auto graph = trace_forward(*network, std::span(kRows).first(1), {});
  ASSERT_NE(graph.find_output("output"), nullptr);
  EXPECT_EQ(graph.type(graph.find_output("output")->value).to_string(), "f32[4,3]");
  EXPECT_EQ(graph.outputs().size(), 1U);
}

struct MeansOfRows : nn::Cell {
  nn::Embedding& table = child<nn::Embedding>("table", 9, 4);
  using nn::Cell::construct;
  Value construct(Value ids) override { return ops::reduce_mean(table(ids), {1}); }
};

TEST(Trace, RowsOfAnOnlyMicroBatchAreKeptAsTheyCome) {
  const std::vector<InputSpec> inputs = {{"ids", {DType::kI32, {3}}}, {"label", {DType::kF32, {3}}}};
  const std::string name = "table.embedding_table";
  for (const int64_t micro_batches : {1, 2}) {
    MeansOfRows network;
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    const auto graph = trace_train_step(network, &loss, optimizer, inputs, {},
                                        {.part = StepPart::kAccumulate, .rows = {{name}, micro_batches}});
    const bool is_only = micro_batches == 1;
    EXPECT_EQ(graph.find_input("accu_count." + name) == nullptr, is_only);
    const ir::Output* ids = graph.find_output("accu_ids." + name);
    const ir::Output* rows = graph.find_output("accu_rows." + name);
    ASSERT_TRUE(ids != nullptr && rows != nullptr);
    EXPECT_EQ(graph.type(rows->value), (Type{DType::kF32, {3 * micro_batches, 4}}));
    EXPECT_EQ(ids->value == graph.find_input("ids")->value, is_only);
    EXPECT_EQ(graph.node(graph.info(rows->value).node).op != "scatter_add", is_only);
  }
}

// Adds what it was given in its last call.
struct AddsLastInput : nn::Cell {
  Value last;
  Value construct(Value x) override {
    const Value before = last ? last : x;
    last = ops::relu(x);
    return x + before;
  }
};

TEST(Trace, AValueOfAnEarlierTraceIsRefusedByTheOperatorThatGetsIt) {
  AddsLastInput network;
  const auto inputs = std::span(kRows).first(1);
  trace_forward(network, inputs, {});
  EXPECT_THAT([&] { trace_forward(network, inputs, {}); },
              ThrowsMessage<InvalidArgument>(AllOf(
                  HasSubstr("add: an operand is %1 f32[4,6], made by relu \".\" of graph \"forward\", whose trace "
                            "has ended"),
                  HasSubstr("assign what the next one reads to a parameter"))));
}

// Passes on what it was given in its first call.
struct KeepsFirstInput : nn::Cell {
  nn::Dense& dense = child<nn::Dense>("dense", 6, 6);
  Value first;
  Value construct(Value x) override {
    if (!first) first = ops::relu(x);
    return dense(first);
  }
};

TEST(Trace, AValueOfATrainStepThatStillLivesIsRefused) {
  KeepsFirstInput network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.1});
  const std::vector<InputSpec> inputs = {{"x", {DType::kF32, {4, 6}}}, {"label", {DType::kF32, {4, 6}}}};
  const auto step = [&] { return trace_train_step(network, &loss, optimizer, inputs, {.training = true}); };
  const auto graph = step();
  const int num_nodes = graph.num_nodes();
  EXPECT_THAT(step,
              ThrowsMessage<InvalidArgument>(HasSubstr("matmul \"dense\": input 0 is %1 f32[4,6], made by relu")));
  EXPECT_EQ(graph.num_nodes(), num_nodes);
}

TEST(Trace, AnOptimizersValueOfAStepThatStillLivesIsRefused) {
  struct KeepsGradient : nn::Optimizer {
    Value kept;
    void update(ir::Graph& /*graph*/, std::span<const nn::ParameterGradient> gradients) override {
      if (kept) ops::neg(kept);
      kept = gradients[0].gradient;
    }
    std::vector<nn::Parameter> states(std::span<nn::Parameter* const> /*parameters*/) const override { return {}; }
    void set_state_prefix(const std::string& /*prefix*/) override {}
  };
  nn::Dense network(6, 6);
  nn::MSELoss loss;
  KeepsGradient optimizer;
  const std::vector<InputSpec> inputs = {{"x", {DType::kF32, {4, 6}}}, {"label", {DType::kF32, {4, 6}}}};
  const auto step = [&] { return trace_train_step(network, &loss, optimizer, inputs, {.training = true}); };
  const auto graph = step();
  const int num_nodes = graph.num_nodes();
  EXPECT_THAT(step, ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("neg"), HasSubstr("whose trace has ended"))));
  EXPECT_EQ(graph.num_nodes(), num_nodes);
}

TEST(Trace, ANullValueIsNoNumber) {
  ir::Graph graph;
  const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {4}});
  EXPECT_THAT([&] { return x + Value(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("add: an operand is a null value")));
}

TEST(Trace, EvaluationHasLossAndOutputAndUpdatesNothing) {
  const auto network = nn::mlp(3, 6, 5);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  const auto graph = trace_loss(*network, loss, kRows, {});
  EXPECT_EQ(graph.outputs().size(), 2U);
  EXPECT_EQ(graph.type(graph.find_output("loss")->value).to_string(), "f32[]");
}

TEST(Trace, ATrainStepUpdatesEveryTrainableParameterOnce) {
  const auto network = nn::mlp(3, 6, 5);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::SGD optimizer({.learning_rate = 0.1});
  const auto graph = trace_train_step(*network, &loss, optimizer, kRows, {.training = true});
  for (const nn::Parameter* p : network->trainable_parameters()) {
    EXPECT_NE(graph.find_output(p->full_name()), nullptr) << p->full_name();
  }
}

TEST(Trace, TheSensitivityScalesTheGradients) {
  const auto step_with = [](double sens) {
    nn::Dense network(2, 1, {.has_bias = false});
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 1.0});
    const std::vector<InputSpec> inputs = {{"x", {DType::kF32, {1, 2}}}, {"label", {DType::kF32, {1, 1}}}};
    const auto graph = trace_train_step(network, &loss, optimizer, inputs, {.training = true}, {.sens = sens});
    std::map<std::string, Tensor> values = {{"x", Tensor::of<float>({1, 2}, {1, 2})},
                                            {"label", Tensor::of<float>({1, 1}, {1})}};
    for (const auto& input : graph.inputs()) {
      if (values.contains(input.name)) continue;
      values[input.name] =
          input.name == "learning_rate" ? Tensor::scalar(1.0F) : Tensor::zeros(graph.type(input.value));
    }
    return evaluate(graph, values).at("weight").to_doubles();
  };
  // loss = (w x - 1)^2 at w = 0: the gradient is -2 x.
  EXPECT_THAT(step_with(1), ElementsAre(2, 4));
  EXPECT_THAT(step_with(3), ElementsAre(6, 12));
}

TEST(Trace, ALossNeedsALabel) {
  const auto network = nn::mlp(3, 6, 5);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  EXPECT_THAT([&] { trace_loss(*network, loss, std::span(kRows).first(1), {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("needs data and a label, got 1")));
}

TEST(Trace, AStepThatDrawsRandomNumbersMovesTheirCounterOn) {
  nn::Dropout network(0.5);
  const auto graph = trace_forward(network, std::span(kRows).first(1), {.training = true, .seed = 3});
  EXPECT_NE(graph.find_output("random_step"), nullptr);
  const auto evaluation = trace_forward(network, std::span(kRows).first(1), {.training = false, .seed = 3});
  EXPECT_EQ(evaluation.find_input("random_step"), nullptr);
}

TEST(Gradients, OfGradientsAreSecondDerivatives) {
  // f = sum(w^3); loss = f + sum((df/dw)^2) = sum(w^3 + 9 w^4); dloss/dw = 3 w^2 + 36 w^3.
  ir::Graph graph("g");
  nn::Parameter w = parameter("w", {3});
  const Value v = w.in(graph);
  const Value f = sum(v * v * v);
  const Value inner = compiler::gradients(f, std::vector{v})[0];
  const Value loss = f + sum(inner * inner);
  graph.add_output("value", loss);
  graph.add_output("gradient", compiler::gradients(loss, std::vector{v})[0]);
  const auto values = evaluate(graph, {{"w", Tensor::of<double>({3}, {1, 0.5, -2})}});
  EXPECT_NEAR(values.at("value").item(), 1 + 0.125 - 8 + 9 * (1 + 0.0625 + 16), 1e-12);
  EXPECT_THAT(values.at("gradient").to_doubles(), Pointwise(DoubleNear(1e-12), {3 + 36.0, 0.75 + 4.5, 12 - 288.0}));
}

TEST(Gradients, AreOfTheValueThatAParameterHadBeforeItWasAssigned) {
  ir::Graph graph("g");
  nn::Parameter w = parameter("w", {2});
  nn::Parameter mean = parameter("mean", {2});
  const std::vector<Value> wrt = {w.in(graph), mean.in(graph)};
  mean.assign(w.in(graph)*0.5);
  const auto gradients = compiler::gradients(sum(w.in(graph)*mean.in(graph)), wrt);
  graph.add_output("dw", gradients[0]);
  graph.add_output("dmean", gradients[1]);
  graph.finish_assignments();
  const auto values =
      evaluate(graph, {{"w", Tensor::of<double>({2}, {1, 2})}, {"mean", Tensor::of<double>({2}, {7, 7})}});
  EXPECT_THAT(values.at("mean").to_doubles(), ElementsAre(0.5, 1));
  EXPECT_THAT(values.at("dw").to_doubles(), ElementsAre(1, 2)) << "0.5 w + 0.5 w: through the value that was assigned";
  EXPECT_THAT(values.at("dmean").to_doubles(), ElementsAre(0, 0)) << "the old mean was never read";
}

}  // namespace
}  // namespace tessera::session
