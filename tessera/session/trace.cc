#include "tessera/session/trace.h"

#include "tessera/base/error.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/gradient_accumulation.h"
#include "tessera/ops/functions.h"
#include "tessera/ops/op_def.h"

namespace tessera::session {
namespace {

using ir::Graph;
using ir::Value;

std::vector<Value> add_inputs(Graph& graph, std::span<const InputSpec> inputs) {
  std::vector<Value> values;
  for (const auto& input : inputs) values.push_back(graph.add_input(ir::InputKind::kInput, input.name, input.type));
  return values;
}

Value call_with_loss(nn::Cell& network, nn::Cell* loss, std::span<const Value> inputs, Value* output) {
  if (loss == nullptr) {
    const Value result = network(inputs);
    if (output != nullptr) *output = result;
    return result;
  }
  if (inputs.size() < 2) throw InvalidArgument("a network with a loss needs data and a label, got {}", inputs.size());
  const Value result = network(inputs.first(inputs.size() - 1));
  if (output != nullptr) *output = result;
  const ir::SourceScope scope(result.graph(), "loss");
  return (*loss)(result, inputs.back());
}

void finish_state(Graph& graph) {
  // Random operators read the number of the training step; a step that used it moves it on.
  if (graph.find_input(nn::kRandomStep) != nullptr && !graph.assignments().contains(nn::kRandomStep)) {
    const Value step = *graph.find_binding(nn::kRandomStep);
    const ir::SourceScope scope(graph, nn::kRandomStep);
    const Value one = ops::apply(graph, "fill", {}, {{"shape", Ints{}}, {"value", 1.0}, {"dtype", step.dtype()}})[0];
    graph.assign(nn::kRandomStep, ops::apply1("add", {step, one}));
  }
}

// The mean over the ranks of their losses, each the mean of its elements.
Value mean_over_ranks(Value loss, const ops::RankGroup& ranks) {
  const ir::SourceScope scope(loss.graph(), "loss");
  const Value own = loss.ndim() == 0 ? loss : ops::reduce_mean(loss);
  return ops::div(ops::all_reduce(own, ranks), static_cast<double>(ranks.ranks.size()));
}

void sum_over_ranks(Graph& graph, std::vector<nn::ParameterGradient>& gradients, const ops::RankGroup& ranks) {
  for (auto& [parameter, gradient] : gradients) {
    if (parameter->layerwise_parallel) continue;
    const ir::SourceScope scope(graph, parameter->full_name());
    gradient = ops::all_reduce(gradient, ranks);
  }
}

}  // namespace

Graph trace_forward(nn::Cell& network, std::span<const InputSpec> inputs, const nn::Settings& settings) {
  network.apply_settings(settings);
  Graph graph("forward");
  graph.add_output("output", network(add_inputs(graph, inputs)));
  if (settings.training) finish_state(graph);
  graph.finish_assignments();
  return graph;
}

Graph trace_loss(nn::Cell& network, nn::Cell& loss, std::span<const InputSpec> inputs, const nn::Settings& settings,
                 const std::optional<ops::RankGroup>& ranks) {
  network.apply_settings(settings);
  loss.apply_settings(settings);
  Graph graph("evaluate");
  Value output;
  const Value value = call_with_loss(network, &loss, add_inputs(graph, inputs), &output);
  graph.add_output("loss", ranks ? mean_over_ranks(value, *ranks) : value);
  graph.add_output("output", output);
  return graph;
}

Graph trace_train_step(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer, std::span<const InputSpec> inputs,
                       const nn::Settings& settings, const TrainStepOptions& options) {
  network.apply_settings(settings);
  auto parameters = network.trainable_parameters();
  if (loss != nullptr) {
    loss->apply_settings(settings);
    for (nn::Parameter* parameter : loss->trainable_parameters()) parameters.push_back(parameter);
  }
  Graph graph("train_step");
  const auto values = add_inputs(graph, inputs);
  const double sens = options.ranks ? options.sens / static_cast<double>(options.ranks->ranks.size()) : options.sens;
  const auto result = value_and_grad(
      graph, [&] { return call_with_loss(network, loss, values, nullptr); }, parameters, sens);
  std::vector<nn::ParameterGradient> gradients;
  for (size_t i = 0; i < parameters.size(); ++i) gradients.push_back({parameters[i], result.gradients[i]});
  if (options.part == StepPart::kAccumulate) {
    nn::accumulate(graph, gradients);
  } else {
    if (options.part == StepPart::kUpdate) gradients = nn::accumulated(graph, gradients);
    if (options.ranks) sum_over_ranks(graph, gradients, *options.ranks);
    const ir::SourceScope scope(graph, "optimizer");
    optimizer.update(graph, gradients);
  }
  finish_state(graph);
  graph.add_output("loss", options.ranks ? mean_over_ranks(result.value, *options.ranks) : result.value);
  graph.finish_assignments();
  return graph;
}

ValueAndGradients value_and_grad(Graph& graph, const std::function<Value()>& f,
                                 std::span<nn::Parameter* const> parameters, double sens) {
  // Parameters as they are read first: an assignment inside f is not differentiated through.
  std::vector<Value> wrt;
  for (const nn::Parameter* parameter : parameters) wrt.push_back(parameter->in(graph));
  const Value value = f();
  const ir::SourceScope scope(graph, "loss");
  const Value seed = ops::apply(graph, "fill", {},
                                {{"shape", value.shape().to_vector()}, {"value", sens}, {"dtype", value.dtype()}})[0];
  return {value, compiler::gradients(value, wrt, seed)};
}

}  // namespace tessera::session
