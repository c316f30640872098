#include "tessera/session/trace.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/gradients/pushed_gradients.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::session {
namespace {

using ir::Graph;
using ir::Value;

std::vector<Value> add_inputs(Graph& graph, std::span<const InputSpec> inputs) {
  std::vector<Value> values;
  for (const auto& input : inputs) values.push_back(graph.add_input(ir::InputKind::kInput, input.name, input.type));
  return values;
}

// The settings of a trace. Its end takes back that batches are normalised in groups, and with it the rows of
// statistics: between traces a network is as on one device.
class TraceSettings {
 public:
  TraceSettings(nn::Cell& network, nn::Cell* loss, const nn::Settings& settings)
      : network_(network), loss_(loss), settings_(settings) {
    apply();
  }
  ~TraceSettings() {
    if (settings_.batch_norm_groups == 0) return;
    settings_.batch_norm_groups = 0;
    apply();
  }
  TraceSettings(const TraceSettings&) = delete;
  TraceSettings& operator=(const TraceSettings&) = delete;

  // The parameters that are trained, those of the network first.
  std::vector<nn::Parameter*> trainable_parameters() const {
    auto parameters = network_.trainable_parameters();
    if (loss_ == nullptr) return parameters;
    for (nn::Parameter* parameter : loss_->trainable_parameters()) parameters.push_back(parameter);
    return parameters;
  }

 private:
  void apply() {
    network_.apply_settings(settings_);
    if (loss_ != nullptr) loss_->apply_settings(settings_);
  }

  nn::Cell& network_;
  nn::Cell* loss_;
  nn::Settings settings_;
};

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

// The graph in that precision, open for more nodes: what its outputs assign is assigned again. Its loss.
Value continue_in(const compiler::Precision& precision, Graph& graph, Value loss) {
  graph.add_output("loss", loss);
  graph.finish_assignments();
  graph = compiler::rewrite_precision(graph, precision);
  const auto outputs = graph.outputs();
  graph.clear_outputs();
  for (const auto& output : outputs) {
    if (output.name == "loss") {
      loss = graph.value(output.value);
    } else {
      graph.assign(output.name, graph.value(output.value));
    }
  }
  return loss;
}

// The mean over the ranks of their losses, each the mean of its elements.
Value mean_over_ranks(Value loss, const ops::RankGroup& ranks) {
  const ir::SourceScope scope(loss.graph(), "loss");
  const Value own = loss.ndim() == 0 ? loss : ops::reduce_mean(loss);
  return ops::div(ops::all_reduce(own, ranks), static_cast<double>(ranks.ranks.size()));
}

void sum_over_ranks(Graph& graph, std::vector<nn::ParameterGradient>& gradients, const ops::RankGroup& ranks) {
  for (auto& pair : gradients) {
    if (pair.parameter->layerwise_parallel) continue;
    const ir::SourceScope scope(graph, pair.parameter->full_name());
    pair.gradient = ops::all_reduce(pair.gradient, ranks);
    if (pair.lookups) pair.lookups = ops::all_reduce(pair.lookups, ranks);
  }
}

// Those of sum(sens * value), times the loss scale where there is one.
std::vector<Value> gradients_of(Value value, std::span<const Value> wrt, double sens,
                                const std::optional<nn::LossScale>& loss_scale) {
  Graph& graph = value.graph();
  const ir::SourceScope scope(graph, "loss");
  Value seed = ops::apply(graph, "fill", {},
                          {{"shape", value.shape().to_vector()}, {"value", sens}, {"dtype", value.dtype()}})[0];
  if (loss_scale) seed = ops::mul(seed, ops::cast(nn::loss_scale_in(graph, *loss_scale), value.dtype()));
  return compiler::gradients(value, wrt, seed);
}

// Training would go on for as long as asked and change nothing. Where ranks exchange values the part may be on
// another one.
void require_some_gradient(Value loss, std::span<nn::Parameter* const> parameters, std::span<const Value> gradients) {
  const Graph& graph = loss.graph();
  const auto op_of = [&](Value value) {
    const ir::NodeId node = graph.info(value.id()).node;
    return node == ir::kNone ? std::string() : graph.node(node).op;
  };
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (ops::is_collective(graph.node(n))) return;
  }
  const auto is_nothing = [&](Value gradient) { return op_of(gradient) == "zeros_like"; };
  if (parameters.empty() || !std::ranges::all_of(gradients, is_nothing)) return;
  constexpr size_t kShown = 3;
  std::string names;
  for (const nn::Parameter* parameter : parameters.first(std::min(parameters.size(), kShown))) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", parameter->full_name());
  }
  if (parameters.size() > kShown) names += fmt::format(" and {} others", parameters.size() - kShown);
  const auto made_by = op_of(loss);
  throw InvalidArgument(
      "the loss {}{} has no gradient with respect to any parameter, training would change nothing: {} have no part in "
      "it. A constant, stop_gradient, argmax, a comparison and a cast to integers let no gradient through",
      loss.type(), made_by.empty() ? "" : fmt::format(", made by {},", made_by), names);
}

// Only what is finite on all ranks is used.
void skip_unless(Graph& graph, Value finite, const TrainStepOptions& options) {
  const ir::SourceScope scope(graph, nn::kLossScale);
  if (options.ranks) finite = ops::all_reduce(finite, *options.ranks, mesh::Reduction::kMin);
  nn::guard_assignments(graph, finite);
  if (options.part != StepPart::kAccumulate) nn::update_loss_scale(*options.loss_scale, finite);
}

}  // namespace

void advance_random_step(Graph& graph) {
  // Random operators read the number of the training step; a step that used it moves it on.
  if (graph.find_input(nn::kRandomStep) != nullptr && !graph.assignments().contains(nn::kRandomStep)) {
    const Value step = *graph.find_binding(nn::kRandomStep);
    const ir::SourceScope scope(graph, nn::kRandomStep);
    const Value one = ops::apply(graph, "fill", {}, {{"shape", Ints{}}, {"value", 1.0}, {"dtype", step.dtype()}})[0];
    graph.assign(nn::kRandomStep, ops::apply1("add", {step, one}));
  }
}

Graph trace_forward(nn::Cell& network, std::span<const InputSpec> inputs, const nn::Settings& settings,
                    const compiler::Precision& precision) {
  const TraceSettings during(network, nullptr, settings);
  Graph graph("forward");
  graph.add_output("output", network(add_inputs(graph, inputs)));
  if (settings.training) advance_random_step(graph);
  graph.finish_assignments();
  return compiler::rewrite_precision(graph, precision);
}

Graph trace_loss(nn::Cell& network, nn::Cell& loss, std::span<const InputSpec> inputs, const nn::Settings& settings,
                 const std::optional<ops::RankGroup>& ranks, const compiler::Precision& precision) {
  const TraceSettings during(network, &loss, settings);
  Graph graph("evaluate");
  Value output;
  const Value value = call_with_loss(network, &loss, add_inputs(graph, inputs), &output);
  graph.add_output("loss", ranks ? mean_over_ranks(value, *ranks) : value);
  graph.add_output("output", output);
  return compiler::rewrite_precision(graph, precision);
}

Graph trace_train_step(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer, std::span<const InputSpec> inputs,
                       const nn::Settings& settings, const TrainStepOptions& options) {
  const TraceSettings during(network, loss, settings);
  const auto parameters = during.trainable_parameters();
  Graph graph("train_step");
  const auto values = add_inputs(graph, inputs);
  const double sens = options.ranks ? options.sens / static_cast<double>(options.ranks->ranks.size()) : options.sens;
  // Those that the forward pass does not read have gradients, too.
  for (const nn::Parameter* parameter : parameters) parameter->in(graph);
  const Value value = continue_in(options.precision, graph, call_with_loss(network, loss, values, nullptr));
  // Of parameters as they are before any assignment.
  std::vector<Value> wrt;
  for (const nn::Parameter* parameter : parameters) {
    wrt.push_back(graph.value(graph.find_input(parameter->full_name())->value));
  }
  const auto differentiated = gradients_of(value, wrt, sens, options.loss_scale);
  require_some_gradient(value, parameters, differentiated);
  std::vector<nn::ParameterGradient> gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    gradients.push_back({.parameter = parameters[i], .gradient = differentiated[i]});
  }
  const bool may_skip = options.loss_scale && options.loss_scale->drop_overflow_update;
  Value finite;
  if (options.part == StepPart::kPush) {
    const ir::SourceScope scope(graph, "push");
    nn::push_gradients(graph, gradients, optimizer, options.rows.parameters);
  } else if (options.part == StepPart::kAccumulate) {
    nn::find_rows(gradients, optimizer, &options.rows);
    nn::accumulate(graph, gradients, options.rows);
    if (may_skip) finite = nn::note_overflow(value);
  } else {
    const nn::RowAccumulation whole;
    if (options.part == StepPart::kUpdate) {
      nn::find_rows(gradients, optimizer, &whole);
      gradients = nn::accumulated(graph, gradients);
    }
    if (options.ranks) sum_over_ranks(graph, gradients, *options.ranks);
    if (options.part == StepPart::kWhole) nn::find_rows(gradients, optimizer, nullptr);
    if (options.loss_scale) gradients = nn::unscaled(*options.loss_scale, gradients);
    if (may_skip) finite = nn::all_finite(gradients, value);
    if (may_skip && options.part == StepPart::kUpdate) finite = nn::without_noted_overflow(finite);
    const ir::SourceScope scope(graph, "optimizer");
    optimizer.update(graph, gradients);
  }
  advance_random_step(graph);
  if (may_skip && (options.part != StepPart::kAccumulate || options.guards_micro_batches)) {
    skip_unless(graph, finite, options);
  }
  graph.add_output("loss", options.ranks ? mean_over_ranks(value, *options.ranks) : value);
  graph.finish_assignments();
  graph.close();
  return graph;
}

Graph trace_update(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer, const nn::Settings& settings,
                   const std::optional<nn::LossScale>& loss_scale, const Graph* micro) {
  const TraceSettings during(network, loss, settings);
  const auto parameters = during.trainable_parameters();
  Graph graph("update");
  for (const nn::Parameter* parameter : parameters) parameter->in(graph);
  auto gradients = nn::held_gradients(graph, parameters, micro);
  if (loss_scale) gradients = nn::unscaled(*loss_scale, gradients);
  {
    const ir::SourceScope scope(graph, "optimizer");
    optimizer.update(graph, gradients);
  }
  if (loss_scale && loss_scale->drop_overflow_update) {
    const Value finite = nn::all_finite_and_none_noted(graph, gradients);
    skip_unless(graph, finite, {.part = StepPart::kUpdate, .loss_scale = loss_scale});
  }
  graph.finish_assignments();
  graph.close();
  return graph;
}

Graph trace_pushed_update(nn::Cell& network, nn::Cell* loss, nn::Optimizer& optimizer, const nn::Settings& settings,
                          const Graph& worker) {
  const TraceSettings during(network, loss, settings);
  const auto parameters = during.trainable_parameters();
  Graph graph("update");
  for (const nn::Parameter* parameter : parameters) parameter->in(graph);
  {
    const ir::SourceScope scope(graph, "optimizer");
    optimizer.update(graph, nn::pushed_gradients(graph, parameters, optimizer, worker));
  }
  graph.finish_assignments();
  graph.close();
  return graph;
}

}  // namespace tessera::session
