#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/session/pipelined_step.h"
#include "tessera/train/modes/found_cuts.h"
#include "tessera/train/modes/measured_profile.h"
#include "tessera/train/modes/mode_options.h"
#include "tessera/train/modes/one_graph.h"
#include "tessera/train/modes/strategy_record.h"
#include "tessera/train/options/precision.h"

namespace tessera::train {
namespace {

// The ranks of the stages, or one stage of all until it is found how many there are. Servers of parameters are a stage.
mesh::StageRanks ranks_of(const ModelOptions& options, int num_ranks) {
  if (options.servers > 0) {
    if (options.servers >= num_ranks) {
      throw InvalidArgument(
          "servers: {} of {} ranks are to keep parameters, which leaves none to train: use fewer servers, or more "
          "ranks",
          options.servers, num_ranks);
    }
    return mesh::StageRanks({options.servers, num_ranks - options.servers});
  }
  const bool is_searched = options.parallel_mode == ParallelMode::kAutomatic && options.pipeline.stages.is_automatic();
  if (is_searched && options.pipeline.ranks.empty()) return mesh::StageRanks({num_ranks});
  return stage_ranks(options.pipeline, num_ranks);
}

// The network's stages lie on ranks of their own, micro-batches pass through them one after the other. Every rank reads
// whole batches and takes of them what its stage reads.
class Pipeline final : public OneGraph {
 public:
  explicit Pipeline(const ModeParts& parts) : OneGraph(parts), ranks_(ranks_of(parts.options, parts.context.size())) {
    check_options();
  }

  bool agrees_on_values() const override { return true; }
  bool gives_own_rows(const data::Dataset& dataset) const override {
    if (dataset.num_shards() == 1) return false;
    throw InvalidArgument(
        "pipeline_parallel: every rank must read the whole batch, but the data set is one rank's part of {} "
        "(num_shards)",
        dataset.num_shards());
  }
  bool takes_whole_batches() const override { return true; }

  compiler::StageLayouts plan_values(session::Session& session, const InputSpecs& inputs) override {
    if (std::exchange(are_placed_, true)) return {};  // for predictions, which lie alike
    auto staged = plan_step(session, inputs, cells_.optimizer != nullptr);
    auto layouts = staged.layouts();
    if (cells_.optimizer != nullptr) planned_ = std::move(staged);
    return layouts;
  }
  std::optional<compiler::Compiled> plan_training(session::Session&, const ir::Graph&, const InputSpecs&) override {
    return std::nullopt;
  }
  // A training step says more: of a model that trains it is waited for.
  compiler::StageLayouts plan_values_of_prediction(session::Session& session, const ir::Graph& graph) override {
    if (cells_.optimizer != nullptr || finds_cuts()) return {};
    are_placed_ = true;
    return plan_forward(session, graph, {}).layouts();
  }
  std::unique_ptr<session::Executable> compile(session::Session& session, const ir::Graph& graph,
                                               const InputSpecs& inputs) const override {
    auto planned = std::exchange(planned_, std::nullopt);
    const bool trains = graph.find_output("output") == nullptr;
    if (!trains) return session.compile_stages(plan_forward(session, graph, inputs), {});
    auto staged = planned ? std::move(*planned) : plan_step(session, inputs, true);
    if (!is_recorded_) recorded_ = strategies_of(staged);
    const auto options = pipelined(staged.micro);
    auto step = session.compile_stages(std::move(staged), options);
    if (options_.pipeline.sum_losses) step->set_loss_factor(static_cast<double>(micro_batches()));
    say(*step, options.profile.name);
    return step;
  }
  // Until values lie on stages each rank has all of them.
  std::unique_ptr<session::Executable> compile_prediction(session::Session& session, const ir::Graph& graph,
                                                          bool /*values_are_placed*/) const override {
    if (!are_placed_) return session.compile_local(graph);
    return session.compile_stages(plan_forward(session, graph, {}), {});
  }
  bool predicts_together() const override { return true; }
  // The first rank of each stage writes how that is split.
  void record(const session::Executable&, bool is_training, checkpoint::Barrier& ranks) override {
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

 private:
  int num_stages() const { return ranks_.num_stages(); }
  int stage() const { return ranks_.stage_of(context_.rank()); }
  int64_t micro_batches() const {
    if (found_micro_batches_ > 0) return found_micro_batches_;
    if (options_.pipeline.micro_batches != 0) return options_.pipeline.micro_batches;
    return has_servers() ? 1 : num_stages();
  }
  bool has_servers() const { return options_.servers > 0; }
  void check_options() const {
    const auto& pipeline = options_.pipeline;
    if (pipeline.micro_batches != 0) {
      compiler::require_micro_batches({.num_stages = has_servers() ? 1 : num_stages()},
                                      static_cast<int>(pipeline.micro_batches));
    }
    if (has_servers() && options_.parallel_mode != ParallelMode::kDataParallel) {
      throw InvalidArgument("servers are there in data_parallel, got {}: a pipeline's stages keep their parameters",
                            to_string(options_.parallel_mode));
    }
    if (pipeline.segments < 0 || (pipeline.segments > 0 && !finds_cuts())) {
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
          "pipeline_parallel accumulates gradients over micro-batches: set pipeline.micro_batches instead "
          "of gradient_accumulation_steps");
    }
  }

  compiler::StageOptions stage_options() const {
    compiler::StageOptions stages{.num_stages = num_stages(), .common_states = {nn::kRandomStep}};
    if (const auto loss_scale = loss_scale_of(options_)) {
      for (const auto& state : nn::loss_scale_states(*loss_scale)) stages.common_states.insert(state.full_name());
    }
    const auto trainable = cells_.trainable_parameters();
    const auto accumulators = nn::gradient_accumulators(trainable);
    for (size_t i = 0; i < trainable.size(); ++i) {
      stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    }
    stages.served = served();
    return stages;
  }

  // The parameters that servers keep, by name.
  std::set<std::string> served() const {
    std::set<std::string> names;
    if (!has_servers()) return names;
    for (const auto* parameter : cells_.trainable_parameters()) {
      if (parameter->on_servers) names.insert(parameter->full_name());
    }
    if (names.empty()) {
      throw InvalidArgument(
          "servers: {} ranks are to keep parameters, but no parameter is set_on_servers(): call it on a cell that has "
          "some, or use no servers",
          options_.servers);
    }
    return names;
  }

  session::PipelinedOptions pipelined(const ir::Graph& micro) const {
    return {.micro_batches = static_cast<int>(micro_batches()),
            .schedule = micro_batches() < num_stages() ? "auto" : options_.pipeline.schedule,  // beside servers
            .receive_ahead = options_.pipeline.receive_ahead,
            .profile = profile(micro)};
  }

  // What the training step is planned by, where none is given: measured once, when the first is, if a search goes by
  // it. The times of a schedule that has a name are only told.
  const compiler::MachineProfile& profile(const ir::Graph& micro) const {
    if (options_.pipeline.profile) return *options_.pipeline.profile;
    if (!planned_by_) {
      const bool is_searched = finds_cuts() || (options_.pipeline.schedule == "auto" && !has_servers());
      planned_by_ = is_searched ? measure_briefly(context_, micro) : compiler::example_profile();
    }
    return *planned_by_;
  }

  // Rows are split over the ranks of a stage, if each has one.
  std::map<int, compiler::WithinStage> within(const InputSpecs& inputs, const compiler::PlanOptions& plan) const {
    std::map<int, compiler::WithinStage> sizes;
    for (const int size : ranks_.sizes()) {
      compiler::WithinStage of_size{.mesh = mesh::Mesh({{"data", size}}), .plan = plan};
      for (const auto& input : inputs) {
        auto sharding = mesh::Sharding::replicated(input.type.shape.ndim());
        if (!sharding.dims.empty()) sharding.dims[0] = {0};
        of_size.hints[input.name] = {of_size.mesh, sharding};
      }
      if (has_servers() && size == ranks_.count(0)) serve(of_size, size != ranks_.count(1));
      sizes.emplace(size, std::move(of_size));
    }
    return sizes;
  }

  // Servers share the rows of what they keep. Where the workers are as many, one plan is for both: they share them,
  // too.
  void serve(compiler::WithinStage& within, bool are_servers_only) const {
    const auto& mesh = within.mesh;
    if (are_servers_only) {
      for (auto& [name, layout] : within.hints)
        layout.sharding = mesh::Sharding::replicated(static_cast<int>(layout.sharding.dims.size()));
    }
    const auto trainable = cells_.trainable_parameters();
    const auto accumulators = nn::gradient_accumulators(trainable);
    for (size_t i = 0; i < trainable.size(); ++i) {
      const auto& shape = trainable[i]->type.shape;
      if (!trainable[i]->on_servers || shape.ndim() == 0 || shape[0] < mesh.size()) continue;
      auto rows = mesh::Sharding::replicated(shape.ndim());
      rows.dims[0] = {0};
      within.hints[trainable[i]->full_name()] = {mesh, rows};
      if (!are_servers_only) continue;
      // What workers have added up comes as it is to lie.
      within.hints[accumulators[i].full_name()] = {mesh, rows};
      within.plan.partial_states.erase(accumulators[i].full_name());
    }
  }

  compiler::PlanOptions stage_plan_options() const {
    compiler::PlanOptions options{.strategies = true, .batch_by_default = true};
    options.optimizer_shards = optimizer_shards();
    options.optimizer_shard_size = options_.optimizer_weight_shard_size;
    for (const auto& [accumulator, parameter] : stage_options().accumulators)
      options.partial_states.insert(accumulator);
    return options;
  }

  static InputSpecs micro_inputs(const InputSpecs& inputs, int64_t micro_batches) {
    auto micro = inputs;
    for (auto& input : micro) input.type.shape[0] = rows_of_micro_batch(input.type.shape[0], micro_batches);
    return micro;
  }

  compiler::StagedPlan plan_step(session::Session& session, const InputSpecs& inputs, bool trains) const {
    const auto precision = precision_of(options_);
    if (!trains) {
      const auto settings_of = settings(false);
      const auto graph =
          cells_.loss != nullptr
              ? session::trace_loss(cells_.network, *cells_.loss, inputs, settings_of, std::nullopt, precision)
              : session::trace_forward(cells_.network, inputs, settings_of, precision);
      return plan_forward(session, graph, inputs);
    }
    if (finds_cuts() && cuts_.empty()) find(inputs);
    const auto micro = micro_inputs(inputs, micro_batches());
    auto graphs = traced_.contains(micro_batches()) ? std::move(traced_.at(micro_batches()))
                                                    : step_graphs(micro, micro_batches());
    traced_.clear();
    if (finds_cuts()) compiler::set_stages(graphs.micro, cuts_);
    if (has_servers()) compiler::place_for_servers(graphs.micro, served());
    return session.plan_stages(graphs.micro, &graphs.update, ranks_, within(micro, stage_plan_options()),
                               stage_options());
  }

  void find(const InputSpecs& inputs) const {
    const auto graphs_of = [&](int64_t count) -> const compiler::StepGraphs& {
      const auto it = traced_.find(count);
      if (it != traced_.end()) return it->second;
      return traced_.emplace(count, step_graphs(micro_inputs(inputs, count), count)).first->second;
    };
    const auto& measured = profile(graphs_of(micro_batches()).micro);
    auto found = find_cuts(context_, inputs.at(0).type.shape[0], graphs_of, options_, measured);
    cuts_ = std::move(found.cells);
    ranks_ = found.ranks;
    found_micro_batches_ = found.micro_batches;
  }

  // Automatic parallelism says how many stages there are, not where they begin.
  bool finds_cuts() const { return options_.parallel_mode == ParallelMode::kAutomatic; }

  compiler::StepGraphs step_graphs(const InputSpecs& micro, int64_t micro_batches) const {
    const auto precision = precision_of(options_);
    const double sens = options_.pipeline.sum_losses ? 1.0 : 1.0 / static_cast<double>(micro_batches);
    const auto step = session::trace_train_step(cells_.network, cells_.loss, *cells_.optimizer, micro, settings(true),
                                                {.sens = sens,
                                                 .part = session::StepPart::kAccumulate,
                                                 .precision = precision,
                                                 .loss_scale = loss_scale_of(options_),
                                                 .guards_micro_batches = false});
    const auto update =
        session::trace_update(cells_.network, cells_.loss, *cells_.optimizer, settings(true), loss_scale_of(options_));
    return {step, update, stage_options()};
  }

  compiler::StagedPlan plan_forward(session::Session& session, const ir::Graph& graph, const InputSpecs& inputs) const {
    auto options = stage_plan_options();
    options.whole_results = true;
    if (has_servers()) {
      auto placed = graph;
      compiler::place_for_servers(placed, served());
      return session.plan_stages(placed, nullptr, ranks_, within(inputs, options), stage_options());
    }
    if (!finds_cuts()) {
      return session.plan_stages(graph, nullptr, ranks_, within(inputs, options), stage_options());
    }
    if (cuts_.empty()) {
      throw InvalidArgument(
          "auto_parallel finds where a network is cut into stages for its training step, and there is none yet: train "
          "first, or use pipeline_parallel with set_stage()");
    }
    auto cut = graph;
    compiler::set_stages(cut, cuts_);
    return session.plan_stages(cut, nullptr, ranks_, within(inputs, options), stage_options());
  }

  // Of this rank's stage.
  checkpoint::StrategyFile strategies_of(const compiler::StagedPlan& staged) const {
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

  void say(const session::PipelinedStep& step, const std::string& profile) const {
    if (context_.rank() != 0) return;
    if (has_servers()) {
      log_info("{} servers keep {} parameters, {} ranks train", options_.servers, served().size(), ranks_.count(1));
      return;
    }
    const auto& found = step.schedule();
    const pipeline::PictureOptions options{.max_width = 150};
    log_info("pipeline of {} stages, {} micro-batches, {}: by the profile \"{}\" idle {:.1f} % of the time\n{}{}",
             num_stages(), micro_batches(), found.origin, profile, found.bubble * 100,
             pipeline::picture(found.schedule, options), pipeline::legend(found.schedule, options));
  }

  mutable mesh::StageRanks ranks_;                          // one stage of all, until it is found how many there are
  mutable int64_t found_micro_batches_ = 0;                 // 0: none were searched for
  mutable std::map<int64_t, compiler::StepGraphs> traced_;  // by number of micro-batches, while a step is planned
  // The training step by whose plan the values have been placed, for what is compiled next.
  mutable std::optional<compiler::StagedPlan> planned_;
  bool are_placed_ = false;            // whether each rank has the values of its stage
  mutable compiler::CellStages cuts_;  // that were found
  mutable std::optional<compiler::MachineProfile> planned_by_;
  mutable checkpoint::StrategyFile recorded_;  // of the latest training step that was compiled
  bool is_recorded_ = false;
};

}  // namespace

std::unique_ptr<Mode> make_pipeline(const ModeParts& parts) { return std::make_unique<Pipeline>(parts); }

}  // namespace tessera::train
