#include "tessera/train/modes/stages/staged.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/train/modes/mode_options.h"
#include "tessera/train/modes/strategy_record.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {

Staged::Staged(const ModeParts& parts, mesh::StageRanks ranks) : OneGraph(parts), ranks_(std::move(ranks)) {
  const auto& pipeline = options_.pipeline;
  if (pipeline.segments < 0 || (pipeline.segments > 0 && options_.parallel_mode != ParallelMode::kAutomatic)) {
    throw InvalidArgument(
        "pipeline.segments is a number of auto_parallel, which finds where the network is cut, got {} in {}: in "
        "pipeline_parallel cells name their segments, set_stage(stage, segment)",
        pipeline.segments, to_string(options_.parallel_mode));
  }
  if (pipeline.receive_ahead < 0) {
    throw InvalidArgument("pipeline.receive_ahead must not be negative, got {}", pipeline.receive_ahead);
  }
  if (options_.gradient_accumulation_steps > 1) {
    throw InvalidArgument(
        "{} gradients over micro-batches: set pipeline.micro_batches instead of gradient_accumulation_steps",
        options_.servers > 0 ? "a job with parameter servers accumulates" : "pipeline_parallel accumulates");
  }
}

bool Staged::gives_own_rows(const data::Dataset& dataset) const {
  const int64_t parts = dataset.num_shards();
  if (parts == 1) return false;
  const bool has_servers = options_.servers > 0;
  if (has_servers || is_placed_by_training() || !ranks_.are_equal()) {
    throw InvalidArgument(
        "{}: every rank must read the whole batch, but the data set is one rank's part of {} (num_shards){}",
        has_servers ? "parameter servers" : "pipeline_parallel", parts,
        has_servers ? ": make it without num_shards and shard_id, each rank that trains takes its rows" : "");
  }
  const int count = ranks_.count(0);
  if (parts == count) return true;
  throw InvalidArgument(
      "pipeline_parallel: the data set is one rank's part of {} (num_shards), but a stage has {}: make it {}", parts,
      plural(count, "rank"),
      count == 1
          ? "without num_shards and shard_id, so that every rank reads the whole batch"
          : fmt::format("with num_shards={0} and shard_id=rank % {0}, or let every rank read the whole batch", count));
}

compiler::StageLayouts Staged::plan_values(session::Session& session, const InputSpecs& inputs) {
  const bool is_done = are_placed_by_step_ || (are_placed_ && !places_for_predictions());
  are_placed_ = are_placed_by_step_ = true;
  if (is_done) return {};  // for predictions, which lie alike
  auto staged = plan_step(session, inputs, cells_.optimizer != nullptr);
  auto layouts = staged.layouts();
  if (cells_.optimizer != nullptr) planned_ = std::move(staged);
  return layouts;
}

// A training step says more: of a model that trains it is waited for, where that can be.
compiler::StageLayouts Staged::plan_values_of_prediction(session::Session& session, const ir::Graph& graph) {
  const bool waits = cells_.optimizer != nullptr && !places_for_predictions();
  if (waits || is_placed_by_training() || are_placed_) return {};
  are_placed_ = true;
  return plan_forward(session, graph, {}).layouts();
}

std::unique_ptr<session::Executable> Staged::compile(session::Session& session, const ir::Graph& graph,
                                                     const InputSpecs& inputs) const {
  auto planned = std::exchange(planned_, std::nullopt);
  const bool trains = graph.find_output("output") == nullptr;
  if (!trains) return session.compile_stages(plan_forward(session, graph, inputs), {});
  auto staged = planned ? std::move(*planned) : plan_step(session, inputs, true);
  // A strategy file cannot hold the strategies of every network: they are recorded only where one is asked for.
  if (!is_recorded_ && !options_.strategy_ckpt_save_file.empty()) recorded_ = strategies_of(staged);
  return make_step(session, std::move(staged), inputs);
}

std::unique_ptr<session::Executable> Staged::make_step(session::Session& session, compiler::StagedPlan staged,
                                                       const InputSpecs&) const {
  const auto options = pipelined(staged.micro);
  auto step = session.compile_stages(std::move(staged), options);
  if (options_.pipeline.sum_losses) step->set_loss_factor(static_cast<double>(micro_batches()));
  if (context_.rank() == 0) say(*step, options.profile.name);
  return step;
}

std::unique_ptr<session::Executable> Staged::compile_prediction(session::Session& session, const ir::Graph& graph,
                                                                bool /*values_are_placed*/) const {
  if (!are_placed_) return session.compile_local(graph);
  return session.compile_stages(plan_forward(session, graph, {}), {});
}

void Staged::record(const session::Executable&, bool is_training, checkpoint::Barrier& ranks) {
  const std::string& path = options_.strategy_ckpt_save_file;
  if (!is_training || is_recorded_) return;
  is_recorded_ = true;
  const auto paths = ranks.exchange(path);
  for (int stage = 0; stage < num_stages(); ++stage) {
    for (int other = 0; other < stage; ++other) {
      const auto& name = paths[static_cast<size_t>(ranks_.first(stage))];
      if (name.empty() || name != paths[static_cast<size_t>(ranks_.first(other))]) continue;
      throw InvalidArgument("strategy_ckpt_save_file: stages {} and {} both name \"{}\": name one for each stage",
                            other, stage, name);
    }
  }
  checkpoint::run_together(ranks, "cannot record strategies", [&] {
    if (context_.rank() == ranks_.first(stage()) && !path.empty()) {
      checkpoint::write_strategy_file(context_.file_system(), path, recorded_);
    }
    return std::string();
  });
}

compiler::StageOptions Staged::stage_options() const {
  compiler::StageOptions stages{.num_stages = num_stages(), .common_states = {nn::kRandomStep}};
  if (const auto loss_scale = loss_scale_of(options_)) {
    for (const auto& state : nn::loss_scale_states(*loss_scale)) stages.common_states.insert(state.full_name());
  }
  stages.accumulators = nn::accumulators_by_name(cells_.trainable_parameters());
  stages.served = served();
  stages.plans_each_stage = plans_each_stage();
  return stages;
}

compiler::StageOptions Staged::stage_options(const session::Session& session) const {
  compiler::StageOptions stages = stage_options();
  stages.reads_rows_in_place = reads_rows_in_place(session);
  return stages;
}

// Rows are split over the ranks of a stage, if each has one.
std::map<int, compiler::WithinStage> Staged::within(const InputSpecs& inputs, const compiler::PlanOptions& plan) const {
  std::map<int, compiler::WithinStage> kinds;
  const auto stages = stage_options();
  for (int stage = 0; stage < num_stages(); ++stage) {
    const auto [it, is_new] = kinds.try_emplace(stages.kind_of(stage, ranks_));
    if (!is_new) continue;
    compiler::WithinStage& of_kind = it->second;
    of_kind = {.mesh = mesh::Mesh({{"data", ranks_.count(stage)}}), .plan = plan};
    for (const auto& input : inputs) {
      auto sharding = mesh::Sharding::replicated(input.type.shape.ndim());
      if (!sharding.dims.empty()) sharding.dims[0] = {0};
      of_kind.hints[input.name] = {of_kind.mesh, sharding};
    }
    adapt(of_kind, stage);
  }
  return kinds;
}

compiler::PlanOptions Staged::stage_plan_options() const {
  compiler::PlanOptions options{.strategies = true, .batch_by_default = true};
  options.optimizer_shards = optimizer_shards();
  options.optimizer_shard_size = options_.optimizer_weight_shard_size;
  for (const auto& [accumulator, parameter] : stage_options().accumulators) options.partial_states.insert(accumulator);
  return options;
}

InputSpecs Staged::micro_inputs(const InputSpecs& inputs, int64_t micro_batches) {
  auto micro = inputs;
  for (auto& input : micro) input.type.shape[0] = rows_of_micro_batch(input.type.shape[0], micro_batches);
  return micro;
}

compiler::StepGraphs Staged::graphs_of_step(const InputSpecs& inputs) const {
  return step_graphs(micro_inputs(inputs, micro_batches()), micro_batches());
}

compiler::StagedPlan Staged::plan_step(session::Session& session, const InputSpecs& inputs, bool trains) const {
  const auto precision = precision_of(options_);
  if (!trains) {
    const auto settings_of = settings(false);
    const auto graph = cells_.loss != nullptr ? session::trace_loss(cells_.network, *cells_.loss, inputs, settings_of,
                                                                    std::nullopt, precision)
                                              : session::trace_forward(cells_.network, inputs, settings_of, precision);
    return plan_forward(session, graph, inputs);
  }
  auto graphs = graphs_of_step(inputs);
  place(graphs.micro);
  const auto micro = micro_inputs(inputs, micro_batches());
  return session.plan_stages(graphs.micro, &graphs.update, ranks_, within(micro, stage_plan_options()),
                             stage_options(session));
}

compiler::StepGraphs Staged::step_graphs(const InputSpecs& micro, int64_t micro_batches) const {
  const auto precision = precision_of(options_);
  const double sens = options_.pipeline.sum_losses ? 1.0 : 1.0 / static_cast<double>(micro_batches);
  const auto step = session::trace_train_step(cells_.network, cells_.loss, *cells_.optimizer, micro, settings(true),
                                              {.sens = sens,
                                               .part = session::StepPart::kAccumulate,
                                               .precision = precision,
                                               .loss_scale = loss_scale_of(options_),
                                               .guards_micro_batches = false,
                                               .rows = {served(), micro_batches}});
  const auto update = session::trace_update(cells_.network, cells_.loss, *cells_.optimizer, settings(true),
                                            loss_scale_of(options_), &step);
  return {step, update, stage_options()};
}

compiler::StagedPlan Staged::plan_forward(session::Session& session, const ir::Graph& graph,
                                          const InputSpecs& inputs) const {
  auto options = stage_plan_options();
  options.whole_results = true;
  auto placed = graph;
  place(placed);
  return session.plan_stages(placed, nullptr, ranks_, within(inputs, options), stage_options(session));
}

// Of this rank's stage.
checkpoint::StrategyFile Staged::strategies_of(const compiler::StagedPlan& staged) const {
  const int own = stage();
  const auto& graph = staged.micro;
  std::set<std::string> nodes;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (staged.placement.stage_of(n) == own) nodes.insert(strategy_node_name(graph, n));
  }
  const auto& sized = staged.of_stage(own);
  const bool has_shards = !staged.options.gathered.empty();
  const auto& recorded = has_shards ? sized.with_shards.graph : staged.micro;
  const auto& plan = has_shards ? sized.with_shards.plan : sized.micro;
  auto file = record_strategies(recorded, plan);
  std::erase_if(file.strategies, [&](const auto& strategy) { return !nodes.contains(strategy.node); });
  for (auto& strategy : file.strategies) strategy.stage = own;
  for (auto& layout : record_layouts_of_update(staged.update, sized.update, recorded, plan)) {
    const auto is_same = [&](const auto& known) { return known.name == layout.name; };
    if (std::none_of(file.layouts.begin(), file.layouts.end(), is_same)) file.layouts.push_back(std::move(layout));
  }
  std::erase_if(file.layouts, [&](const auto& layout) {
    const auto at = staged.values.find(layout.name);
    return at == staged.values.end() || at->second != own || nn::is_accumulated_gradient(layout.name);
  });
  return file;
}

}  // namespace tessera::train
