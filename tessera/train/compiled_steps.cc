#include "tessera/train/compiled_steps.h"

#include <atomic>
#include <functional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/mesh/strategy.h"
#include "tessera/train/core/same_training.h"
#include "tessera/train/options/precision.h"
#include "tessera/train/saving/network_identity.h"
#include "tessera/train/saving/rank_barrier.h"

namespace tessera::train {
namespace {

std::string signature_of(const char* what, const InputSpecs& inputs) {
  std::string text = what;
  for (const auto& input : inputs) text += fmt::format(" {}:{}", input.name, input.type);
  return text;
}

std::string training_signature(const InputSpecs& inputs, session::StepPart part) {
  return signature_of(part == session::StepPart::kAccumulate ? "accumulate" : "train", inputs);
}

bool is_of_training(std::string_view signature) {
  return signature.starts_with("train ") || signature.starts_with("accumulate ");
}

size_t hash_of(const ir::Graph& graph) { return std::hash<std::string>()(print(graph)); }

// Says once in a process that each of several ranks trains a network of its own.
void say_ranks_apart(const cluster::Context& context) {
  static std::atomic<bool> is_said = false;
  if (context.size() == 1 || context.rank() != 0 || is_said.exchange(true)) return;
  log_warning("{}", ranks_apart_text(context.size()));
}

}  // namespace

session::StepPart CompiledSteps::updating_part() const {
  return core_.options.accumulates() ? session::StepPart::kUpdate : session::StepPart::kWhole;
}

ir::Graph CompiledSteps::trace_training(const InputSpecs& inputs, session::StepPart part) {
  const auto& [network, loss, optimizer] = core_.cells;
  if (optimizer == nullptr) {
    throw InvalidArgument("training needs an optimizer, and this model has none: Model(network, loss, optimizer)");
  }
  const Mode& mode = *core_.mode;
  const double sens = mode.gradient_scale() / static_cast<double>(core_.options.gradient_accumulation_steps);
  auto graph = session::trace_train_step(network, loss, *optimizer, inputs, mode.settings(true),
                                         {.sens = sens,
                                          .part = part,
                                          .ranks = mode.ranks_of_loss(),
                                          .precision = precision_of(core_.options),
                                          .loss_scale = loss_scale_of(core_.options)});
  // Checked after the trace: where layers are no children of the network, the trace's own error says more.
  if (core_.cells.trainable_parameters().empty()) {
    throw InvalidArgument("training needs a parameter that it may change: none of the {} has requires_grad",
                          network.parameters().size());
  }
  say_wide_columns(graph);
  say_missing_servers();
  mode.apply_strategies(graph, /*is_training=*/true);
  return graph;
}

ir::Graph CompiledSteps::trace_evaluation(const InputSpecs& inputs) {
  const auto& [network, loss, optimizer] = core_.cells;
  const Mode& mode = *core_.mode;
  const auto precision = precision_of(core_.options);
  const auto settings = mode.settings(false);
  auto graph = loss != nullptr
                   ? session::trace_loss(network, *loss, inputs, settings, mode.ranks_of_loss(), precision)
                   : session::trace_forward(network, std::span(inputs).first(inputs.size() - 1), settings, precision);
  say_unused_strategies(graph);
  mode.apply_strategies(graph, /*is_training=*/false);
  return graph;
}

session::Executable& CompiledSteps::training(const InputSpecs& inputs, session::StepPart part) {
  const bool accumulating = part == session::StepPart::kAccumulate;
  const auto signature = training_signature(inputs, part);
  if (auto* known = find(signature)) return *known;
  if (!values_placed_ && accumulating) training(inputs, updating_part());
  const auto graph = trace_training(inputs, part);
  if (auto* known = confirm(signature, graph)) return *known;
  meet("compilation of a training step");
  if (compiled_.contains(signature)) identity_.forget_network();
  compare_with_job(graph);
  auto planned = place_values(graph, inputs);
  say_unused_strategies(graph);
  if (!core_.mode->is_shared()) say_ranks_apart(core_.context);
  identity_.note_network(graph);
  auto& executable = keep(signature, graph, compile(graph, inputs, std::move(planned)));
  if (!accumulating) record(executable, /*is_training=*/true);
  return executable;
}

// Where one rank may compile alone, only the first steps are compiled by all.
void CompiledSteps::meet(const char* what) const {
  if (!values_placed_ || core_.mode->compiles_together()) core_.meet(what);
}

void CompiledSteps::compare_with_job(const ir::Graph& train_step) const {
  // Where each rank normalises its own rows, the graph depends on the number of ranks.
  const bool is_comparable = core_.mode->may_be_resized() && core_.mode->batch_norm_groups() == 0;
  if (values_placed_ || !is_comparable || !is_compared_with_job(core_.context)) return;
  const NetworkIdentity own = identity_of(train_step);
  require_same_as_job(core_.context, {{"what the network computes", fmt::format("{} ({})", own.operators, own.hash)}});
}

session::Executable* CompiledSteps::known_training(const InputSpecs& inputs, session::StepPart part) const {
  const auto known = compiled_.find(training_signature(inputs, part));
  return known == compiled_.end() ? nullptr : known->second.executable.get();
}

session::Executable& CompiledSteps::evaluation(const InputSpecs& inputs) {
  const auto signature = signature_of("eval", inputs);
  if (auto* known = find(signature)) return *known;
  const auto graph = trace_evaluation(inputs);
  if (auto* known = confirm(signature, graph)) return *known;
  meet("compilation of an evaluation");
  std::optional<compiler::Compiled> planned;
  if (core_.cells.optimizer == nullptr) {
    planned = place_values(graph, inputs);
  } else if (!values_placed_) {
    place_values(trace_training(inputs), inputs);
  }
  return keep(signature, graph, compile(graph, inputs, std::move(planned)));
}

session::Executable& CompiledSteps::prediction(const InputSpecs& inputs) {
  return predict(inputs, core_.mode->places_for_predictions());
}

void CompiledSteps::build_prediction(const InputSpecs& inputs) {
  record(predict(inputs, /*places_values=*/true), /*is_training=*/false);
}

session::Executable& CompiledSteps::predict(const InputSpecs& inputs, bool places_values) {
  const auto signature = signature_of("predict", inputs);
  const bool is_placed = values_placed_ || predicts_split_;
  const bool may_be_known = is_placed || !places_values;
  if (auto* known = may_be_known ? find(signature) : nullptr) return *known;
  Mode& mode = *core_.mode;
  auto graph =
      session::trace_forward(core_.cells.network, inputs, mode.settings_of_prediction(), precision_of(core_.options));
  say_unused_strategies(graph);
  mode.apply_strategies(graph, /*is_training=*/false);
  if (auto* known = may_be_known ? confirm(signature, graph) : nullptr) return *known;
  if (places_values && !is_placed) {
    if (auto planned = mode.plan_prediction(core_.session(), graph)) {
      place_as_planned(*planned);
      predicts_split_ = true;
      return keep(signature, graph, core_.session().compile(std::move(*planned)));
    }
    if (const auto layouts = mode.plan_values_of_prediction(core_.session(), graph); !layouts.empty()) {
      place(layouts);
      predicts_split_ = true;
    }
  }
  return keep(signature, graph, mode.compile_prediction(core_.session(), graph, is_placed || places_values));
}

session::Executable* CompiledSteps::find(const std::string& signature) {
  const auto known = compiled_.find(signature);
  return known != compiled_.end() && !known->second.is_doubted ? known->second.executable.get() : nullptr;
}

session::Executable* CompiledSteps::confirm(const std::string& signature, const ir::Graph& graph) {
  require_known_values(graph);
  const auto known = compiled_.find(signature);
  if (known == compiled_.end() || known->second.graph_hash != hash_of(graph)) return nullptr;
  known->second.is_doubted = false;
  return known->second.executable.get();
}

session::Executable& CompiledSteps::keep(const std::string& signature, const ir::Graph& graph,
                                         std::unique_ptr<session::Executable> executable) {
  // A prediction may change values, too.
  executable->set_before_update([this, threads = ParallelFor(core_.bare_session().num_threads())](
                                    const TensorView& changed) { snapshot_.finish(changed, threads); });
  auto& entry = compiled_[signature] = {.executable = std::move(executable), .graph_hash = hash_of(graph)};
  return *entry.executable;
}

void CompiledSteps::require_known_values(const ir::Graph& graph) const {
  const session::Session& session = core_.bare_session();
  for (const ir::Input& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    const Type& type = graph.info(input.value).type;
    if (!session.holds(input.name)) {
      throw InvalidArgument(
          "the network has changed since its model was made: it computes with {} \"{}\" {}, which the model does not "
          "have; "
          "make a new Model",
          to_string(input.kind), input.name, type);
    }
    // A prediction reads this rank's row alone.
    const bool is_own_row = core_.values->has_row_per_rank(input.name) && session.values().type(input.name) == type;
    if (session.global_type(input.name) != type && !is_own_row) {
      throw InvalidArgument(
          "the network has changed since its model was made: {} \"{}\" is {}, in the model {}; make a new Model",
          to_string(input.kind), input.name, type, session.global_type(input.name));
    }
  }
}

void CompiledSteps::doubt() {
  for (auto& [signature, entry] : compiled_) entry.is_doubted = true;
  ++num_doubts_;
}

std::optional<compiler::Compiled> CompiledSteps::place_values(const ir::Graph& step, const InputSpecs& inputs) {
  if (values_placed_) return std::nullopt;
  auto planned = core_.mode->plan_training(core_.bare_session(), step, inputs);
  if (planned) {
    place_as_planned(*planned);
  } else {
    place(core_.mode->plan_values(core_.bare_session(), inputs));
  }
  values_placed_ = true;
  return planned;
}

void CompiledSteps::place_as_planned(const compiler::Compiled& planned) {
  place(core_.bare_session().new_layouts(planned));
}

void CompiledSteps::place(const compiler::StageLayouts& layouts) {
  if (layouts.empty()) return;
  snapshot_.finish();
  compiled_.clear();  // predictions made so far: they have the values where they were
  core_.bare_session().place(layouts);
}

std::unique_ptr<session::Executable> CompiledSteps::compile(const ir::Graph& graph, const InputSpecs& inputs,
                                                            std::optional<compiler::Compiled> planned) {
  if (planned) return core_.bare_session().compile(std::move(*planned));
  return core_.mode->compile(core_.bare_session(), graph, inputs);
}

void CompiledSteps::record(const session::Executable& executable, bool is_training) {
  RankBarrier ranks(core_.context.world());
  core_.mode->record(executable, is_training, ranks);
}

namespace {

// What no number of ranks makes right is refused on one, too, on which a script is tried first.
void require_form_of_strategy(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  const mesh::Strategy& strategy = node.strategy;
  const auto fail = [&](const std::string& why) {
    throw InvalidArgument("{}: strategy {} {}", graph.node_name(id), mesh::to_string(strategy), why);
  };
  for (size_t i = 0; i < strategy.size(); ++i) {
    for (size_t dim = 0; dim < strategy[i].size(); ++dim) {
      if (strategy[i][dim] >= 1) continue;
      fail(fmt::format("splits dim {} of operand {} in {}; a count must be at least 1", dim, i, strategy[i][dim]));
    }
  }
  if (strategy.size() != node.inputs.size()) {
    fail(fmt::format("has {}, the operator has {}", plural(std::ssize(strategy), "tuple"),
                     plural(std::ssize(node.inputs), "operand")));
  }
}

}  // namespace

void CompiledSteps::say_unused_strategies(const ir::Graph& graph) {
  const ParallelMode mode = core_.options.parallel_mode;
  const bool is_alone = reads_strategies(mode) && core_.context.size() == 1;
  if ((reads_strategies(mode) && !is_alone) || strategies_said_ || core_.context.rank() != 0) return;
  std::set<std::string> operators;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    if (node.strategy.empty() || node.forward != ir::kNone) continue;
    if (is_alone) require_form_of_strategy(graph, n);
    operators.insert(node.source + ":" + node.op);
  }
  if (operators.empty()) return;
  strategies_said_ = true;
  if (is_alone) {
    log_warning(
        "the strategies of {} operator{} have no effect on one rank, \"{}\" has one: start several by tessera run -n N",
        operators.size(), operators.size() == 1 ? "" : "s", *operators.begin());
    return;
  }
  log_warning("the strategies of {} operator{} have no effect in {}: only in {}; \"{}\" has one", operators.size(),
              operators.size() == 1 ? "" : "s", to_string(mode), modes_that_read_strategies(), *operators.begin());
}

void CompiledSteps::say_wide_columns(const ir::Graph& graph) {
  if (wide_columns_said_ || core_.context.rank() != 0) return;
  std::string wide;
  for (const ir::Input& input : graph.inputs()) {
    if (graph.type(input.value).dtype != DType::kF64) continue;
    if (input.kind != ir::InputKind::kInput) return;  // the network itself is
    wide += fmt::format("{}\"{}\"", wide.empty() ? "" : ", ", input.name);
  }
  if (wide.empty()) return;
  int64_t computed = 0;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ir::ValueId output : graph.node(n).outputs) computed += graph.type(output).dtype == DType::kF64 ? 1 : 0;
  }
  if (computed == 0) return;  // it is cast where it is read
  wide_columns_said_ = true;
  log_warning(
      "the data set gives f64 for {}, NumPy's usual dtype: {} values of the training step are f64 by that, at half the "
      "speed; give it as f32: array.astype(numpy.float32), or tessera.data.type_cast in the data set",
      wide, computed);
}

void CompiledSteps::say_missing_servers() {
  if (missing_servers_said_ || core_.options.servers > 0 || core_.context.rank() != 0) return;
  for (const auto* parameter : core_.cells.trainable_parameters()) {
    if (!parameter->on_servers) continue;
    missing_servers_said_ = true;
    log_warning(
        "parameter \"{}\" is set_on_servers(), but the job has no parameter servers: start some by tessera run -n N "
        "--servers M",
        parameter->full_name());
    return;
  }
}

void CompiledSteps::enable_profiling() {
  for (auto& [signature, entry] : compiled_) {
    if (is_of_training(signature)) entry.executable->set_profiling(true);
  }
}

}  // namespace tessera::train
