#include "tessera/compiler/stages/staged_plan.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/compiler/recompute_blocks.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/verify/verify_plan.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

// Values that other phases or chunks read: they leave what makes them whole.
std::set<ValueId> leaving_values(const Graph& graph, const StagePlacement& placement) {
  std::set<ValueId> leaving;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) {
      const NodeId producer = graph.info(v).node;
      if (producer == ir::kNone) continue;
      const bool crosses =
          placement.chunk_of(producer) != placement.chunk_of(n) && placement.chunk_of(n) != kEveryStage;
      if (crosses || placement.phase_of(producer) != placement.phase_of(n)) leaving.insert(v);
    }
  }
  return leaving;
}

// What is partial of them is completed once, for all readers.
void complete(Plan& plan, const std::set<ValueId>& leaving) {
  for (const ValueId v : leaving) {
    if (plan.copies.contains(v)) continue;
    mesh::Sharding whole = plan.values[static_cast<size_t>(v)];
    if (!whole.is_partial()) continue;
    whole.partial.clear();
    plan.copies[v] = whole;
  }
}

// The first axis of a layout whose parameter several stages have.
constexpr const char* kStagesAxis = "stages";

mesh::Layout with_stages(const mesh::Layout& layout, const std::vector<std::vector<int>>& ranks_of_stages) {
  std::vector<mesh::Axis> axes = {{kStagesAxis, static_cast<int>(ranks_of_stages.size())}};
  std::vector<int> ranks;
  for (int i = 0; i < layout.mesh.num_axes(); ++i) axes.push_back(layout.mesh.axis(i));
  for (const auto& of_stage : ranks_of_stages) {
    const auto mesh = on_ranks(layout.mesh, of_stage);
    ranks.insert(ranks.end(), mesh.ranks().begin(), mesh.ranks().end());
  }
  mesh::Sharding sharding = layout.sharding;
  for (auto& dim : sharding.dims) {
    for (int& axis : dim) ++axis;
  }
  for (auto& partial : sharding.partial) ++partial.axis;
  return {mesh::Mesh(std::move(axes), std::move(ranks)), std::move(sharding)};
}

// What passes between rounds of the update is whole, and what all stages are told is so on every rank.
void complete(Plan& plan, const Graph& graph, const UpdateRounds& rounds) {
  complete(plan, values_between_rounds(graph, rounds));
  for (const auto& round : rounds.told) {
    for (const auto& [v, stage] : round) plan.copies[v] = mesh::Sharding::replicated(graph.type(v).shape.ndim());
  }
}

// Inputs of both graphs lie alike: as the micro-batch's plan has them. What all stages have is whole.
ShardingHints update_hints(const StagedPlan& plan, const mesh::Mesh& mesh, ShardingHints hints) {
  for (const auto& input : plan.update.graph.inputs()) {
    if (plan.values.at(input.name) != kEveryStage) continue;
    hints[input.name] = {mesh, mesh::Sharding::replicated(plan.update.graph.type(input.value).shape.ndim())};
  }
  for (const auto& input : plan.micro.graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    const bool is_gathered = plan.options.gathered.contains(input.name);
    hints[input.name] = (is_gathered ? plan.with_shards.plan : plan.micro.plan).layout(input.value);
  }
  return hints;
}

}  // namespace

std::vector<int> StagedPlan::ranks_of(int stage) const {
  std::vector<int> ranks(static_cast<size_t>(ranks_per_stage()));
  std::iota(ranks.begin(), ranks.end(), stage * ranks_per_stage());
  return ranks;
}

ShardingHints StagedPlan::layouts() const {
  ShardingHints result;
  const auto add = [&](const PlannedPart& part) {
    for (const auto& input : part.graph.inputs()) {
      if (input.kind == ir::InputKind::kInput || options.accumulators.contains(input.name)) continue;
      if (&part == &micro && options.gathered.contains(input.name)) continue;
      const int stage = values.at(input.name);
      if (stage == kEveryStage) continue;
      auto layout = part.plan.layout(input.value);
      const auto shared = placement.shared.find(input.name);
      if (shared == placement.shared.end()) {
        layout.mesh = on_ranks(layout.mesh, ranks_of(stage));
      } else {
        std::vector<std::vector<int>> ranks;
        for (const int s : shared->second) ranks.push_back(ranks_of(s));
        layout = with_stages(layout, ranks);
      }
      result.try_emplace(input.name, std::move(layout));
    }
  };
  add(micro);
  add(update);
  return result;
}

namespace {

// The graph of a micro-batch, in which each stage reads its own parameters and each chunk adds to its own accumulators.
void share_parameters(StagedPlan& plan, StageOptions& options, bool trains) {
  Graph& graph = plan.micro.graph;
  StageOptions before_casts = options;
  before_casts.require_parameters = false;  // a stage may have casts of them only
  graph = repeat_casts(graph, place_on_stages(graph, before_casts));
  plan.placement = place_on_stages(graph, options);
  if (!trains || plan.placement.shared_by_chunks.empty()) return;
  graph = split_accumulators(graph, plan.placement, options);
  plan.placement = place_on_stages(graph, options);
}

// The plan of a micro-batch. Optimizer shards are gathered once a step, and their gradients scattered once:
// micro-batches see whole parameters.
void plan_micro(StagedPlan& plan, const mesh::Mesh& mesh, const ShardingHints& hints, const PlanOptions& options) {
  const Graph& micro = plan.micro.graph;
  const auto& shards = options.optimizer_shards;
  plan.micro.plan = propagate(micro, mesh, hints, options);
  if (shards.empty()) return;
  plan.with_shards = plan.micro;
  ShardingHints whole_hints = hints;
  PlanOptions whole = options;
  for (const auto& parameter : shards) whole_hints.erase(parameter);
  whole.optimizer_shards.clear();
  plan.micro.plan = propagate(micro, mesh, whole_hints, whole);

  Graph graph("gather");
  ShardingHints layouts;
  std::map<std::string, ir::Value> gathered;
  for (const auto& input : micro.inputs()) {
    const auto shard = plan.with_shards.plan.layout(input.value);
    if (!shards.contains(input.name) || shard == plan.micro.plan.layout(input.value)) continue;
    layouts[input.name] = shard;
    layouts[gathered_name(input.name)] = plan.micro.plan.layout(input.value);
    gathered[input.name] = graph.add_input(input.kind, input.name, micro.type(input.value));
  }
  for (const auto& [name, shard] : gathered) {
    graph.add_input(ir::InputKind::kState, gathered_name(name), shard.type());
    graph.add_output(gathered_name(name), shard);
    plan.options.gathered.insert(name);
  }
  plan.gather.plan = propagate(graph, mesh, layouts);
  plan.gather.graph = std::move(graph);
}

void plan_update(StagedPlan& plan, const Graph& update, const mesh::Mesh& mesh, const ShardingHints& hints,
                 PlanOptions options) {
  plan.update.graph = simplify(sum_accumulators(update, plan.options));
  plan.rounds = place_update(plan.update.graph, plan.values, options.partial_states);
  options.fixed.clear();
  options.whole_sums = values_between_rounds(plan.update.graph, plan.rounds);
  plan.update.plan = propagate(plan.update.graph, mesh, update_hints(plan, mesh, hints), options);
  complete(plan.update.plan, plan.update.graph, plan.rounds);
}

}  // namespace

StagedPlan plan_stages(const Graph& micro, const Graph* update, const mesh::Mesh& mesh, const ShardingHints& hints,
                       const StageOptions& stages, const CompileOptions& options) {
  StagedPlan result;
  result.micro.graph = simplify(micro);
  // Whatever the schedule, what may pass from phase to phase is whole.
  StageOptions finest = stages;
  finest.split_backward = update != nullptr;
  share_parameters(result, finest, update != nullptr);
  result.options = finest;
  PlanOptions plan_options = options.plan;
  for (const auto& [parameter, at] : result.placement.shared) plan_options.optimizer_shards.erase(parameter);
  for (const auto& [accumulator, other] : finest.other_accumulators) {
    if (plan_options.partial_states.contains(other.of_owner)) plan_options.partial_states.insert(accumulator);
  }
  PlanOptions micro_options = plan_options;
  micro_options.whole_sums = leaving_values(result.micro.graph, result.placement);
  // An evaluation gathers where it reads.
  if (update != nullptr) {
    plan_micro(result, mesh, hints, micro_options);
    finest.gathered = result.placement.gathered = result.options.gathered;
  } else {
    result.micro.plan = propagate(result.micro.graph, mesh, hints, micro_options);
  }
  complete(result.micro.plan, micro_options.whole_sums);
  const int num_nodes = result.micro.graph.num_nodes();
  recompute_blocks(result.micro.graph, result.micro.plan, options.partition);
  if (result.micro.graph.num_nodes() != num_nodes) {
    // What is computed again belongs to backward.
    result.placement = place_on_stages(result.micro.graph, finest);
    complete(result.micro.plan, leaving_values(result.micro.graph, result.placement));
  }
  if (options.verification != Verification::kNone) verify_plan_or_throw(result.micro.graph, result.micro.plan);
  result.values = result.placement.values;
  // The sums of other stages are sent to the parameter's own.
  for (const auto& [accumulator, other] : finest.other_accumulators) {
    result.values[accumulator] = result.values.at(finest.accumulators.at(accumulator));
  }
  if (update == nullptr) return result;
  plan_update(result, *update, mesh, hints, plan_options);
  if (options.verification != Verification::kNone) verify_plan_or_throw(result.update.graph, result.update.plan);
  return result;
}

mesh::Layout without_stages(const mesh::Layout& layout, int ranks_per_stage) {
  const auto& ranks = layout.mesh.ranks();
  if (layout.mesh.axis(0).name != kStagesAxis) return layout;
  std::vector<mesh::Axis> axes;
  for (int i = 1; i < layout.mesh.num_axes(); ++i) axes.push_back(layout.mesh.axis(i));
  mesh::Sharding sharding = layout.sharding;
  for (auto& dim : sharding.dims) {
    for (int& axis : dim) --axis;
  }
  for (auto& partial : sharding.partial) --partial.axis;
  return {mesh::Mesh(std::move(axes), {ranks.begin(), ranks.begin() + ranks_per_stage}), std::move(sharding)};
}

PlannedPart cut_gather(const StagedPlan& plan, int stage) {
  const Graph& graph = plan.gather.graph;
  PartBuilder builder(graph, plan.gather.plan, plan.ranks_of(stage), graph.name());
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto& output = graph.outputs()[i];
    const ir::Input& parameter = graph.inputs()[static_cast<size_t>(graph.info(output.value).index)];
    if (plan.values.at(parameter.name) != stage) continue;
    builder.add_input(output.value, parameter.kind, parameter.name);
    builder.add_input(graph.find_input(output.name)->value, ir::InputKind::kState, output.name);
    builder.add_output(output.name, output.value, plan.gather.plan.outputs[i]);
  }
  return builder.finish();
}

std::vector<std::string> update_outputs(const StagedPlan& plan, int stage) {
  std::vector<std::string> names;
  for (const auto& output : plan.update.graph.outputs()) {
    if (plan.update.graph.find_input(output.name) == nullptr) continue;
    const int owner = plan.values.at(output.name);
    if (owner == stage || owner == kEveryStage) names.push_back(output.name);
  }
  return names;
}

}  // namespace tessera::compiler
