#include "tessera/compiler/stages/staged_plan.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/recompute_blocks.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/mesh/strategy.h"
#include "tessera/mesh/strategy_error.h"

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
      // What is spread where it comes to leaves as it is before that.
      const auto& made = graph.node(producer);
      if (crosses && made.op == "spread_rows") leaving.insert(made.inputs.begin(), made.inputs.end());
    }
  }
  for (const auto& output : graph.outputs()) {
    if (graph.info(output.value).node != ir::kNone && placement.is_read_in_slot(graph, output)) {
      leaving.insert(output.value);
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

// What passes between rounds of the update is whole, and what all stages are told is so on every rank.
void complete(Plan& plan, const Graph& graph, const UpdateRounds& rounds) {
  complete(plan, values_between_rounds(graph, rounds));
  for (const auto& round : rounds.told) {
    for (const auto& [v, stage] : round) plan.copies[v] = mesh::Sharding::replicated(graph.type(v).shape.ndim());
  }
}

mesh::Layout moved_to(const mesh::Layout& layout, const std::vector<int>& ranks) {
  return {on_ranks(layout.mesh, ranks), layout.sharding};
}

mesh::Layout completed(mesh::Layout layout) {
  layout.sharding.partial.clear();
  return layout;
}

// The ranks to which a sum is given that others add nothing to: those with coordinate 0 on the axes that it is partial
// over. What they have lies as each of them has it.
mesh::Layout first_of_sum(const mesh::Layout& layout) {
  const auto& [mesh, sharding] = layout;
  const auto is_partial = [&](int axis) {
    return std::any_of(sharding.partial.begin(), sharding.partial.end(), [&](const auto& p) { return p.axis == axis; });
  };
  std::vector<mesh::Axis> axes;
  std::vector<int> renumbered(static_cast<size_t>(mesh.num_axes()), -1);
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (is_partial(axis)) continue;
    renumbered[static_cast<size_t>(axis)] = static_cast<int>(axes.size());
    axes.push_back(mesh.axis(axis));
  }
  std::vector<int> ranks;
  for (const int rank : mesh.ranks()) {
    const auto at = mesh.coordinates(rank);
    const bool is_first = std::all_of(sharding.partial.begin(), sharding.partial.end(),
                                      [&](const auto& p) { return at[static_cast<size_t>(p.axis)] == 0; });
    if (is_first) ranks.push_back(rank);
  }
  mesh::Sharding own = sharding;
  own.partial.clear();
  for (auto& dim : own.dims) {
    for (int& axis : dim) axis = renumbered[static_cast<size_t>(axis)];
  }
  return {mesh::Mesh(std::move(axes), std::move(ranks)), std::move(own)};
}

bool covers_all_ranks(const std::vector<mesh::Layout>& layouts, const mesh::StageRanks& ranks) {
  int count = 0;
  for (const auto& layout : layouts) count += layout.mesh.size();
  return count == ranks.num_ranks();
}

bool are_replicated(const std::vector<mesh::Layout>& layouts) {
  return std::all_of(layouts.begin(), layouts.end(),
                     [](const mesh::Layout& layout) { return layout.sharding.is_replicated(); });
}

}  // namespace

StageLayouts StagedPlan::layouts() const {
  StageLayouts result;
  const auto add = [&](const Graph& graph, Plan SizedPlan::*part) {
    for (const auto& input : graph.inputs()) {
      if (input.kind == ir::InputKind::kInput || options.accumulators.contains(input.name)) continue;
      if (part == &SizedPlan::micro && options.gathered.contains(input.name)) continue;
      const int stage = values.at(input.name);
      if (stage == kEveryStage || result.contains(input.name)) continue;
      const auto shared = placement.shared.find(input.name);
      const auto stages = shared == placement.shared.end() ? std::vector<int>{stage} : shared->second;
      std::vector<mesh::Layout> layouts;
      for (const int s : stages) layouts.push_back(moved_to((of_stage(s).*part).layout(input.value), ranks_of(s)));
      if (stages.size() > 1 && are_replicated(layouts) && covers_all_ranks(layouts, ranks)) continue;
      result.emplace(input.name, std::move(layouts));
    }
  };
  add(micro, &SizedPlan::micro);
  add(update, &SizedPlan::update);
  return result;
}

mesh::Layout StagedPlan::layout_in_chunk(ValueId v, int chunk) const {
  return moved_to(of_chunk(chunk).micro.source_layout(v), ranks_of(placement.stage_of_chunk(chunk)));
}

mesh::Layout StagedPlan::layout_sent(const std::string& name, int stage) const {
  const auto own = moved_to(of_stage(stage).micro.layout(micro.find_input(name)->value), ranks_of(stage));
  return is_completed_first(*this, name) ? completed(own) : own;
}

mesh::Layout StagedPlan::layout_received(const std::string& name, int stage) const {
  const auto own = moved_to(of_stage(stage).micro.layout(micro.find_input(name)->value), ranks_of(stage));
  return is_completed_first(*this, name) ? first_of_sum(own) : own;
}

namespace {

// The graph of a micro-batch, in which each stage reads its own parameters and each chunk adds to its own accumulators.
void share_parameters(StagedPlan& plan, StageOptions& options, bool trains) {
  Graph& graph = plan.micro;
  StageOptions before_casts = options;
  before_casts.require_parameters = false;  // a stage may have casts of them only
  graph = repeat_casts(graph, place_on_stages(graph, before_casts));
  plan.placement = place_on_stages(graph, options);
  if (!trains || plan.placement.shared_by_chunks.empty()) return;
  graph = split_accumulators(graph, plan.placement, options);
  plan.placement = place_on_stages(graph, options);
}

// A strategy speaks of the ranks of its cell's stage: it shares an operator among as many, or a number that divides it.
void require_narrow_strategies(const Graph& graph, const StagePlacement& placement, const mesh::StageRanks& ranks) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    const int stage = placement.stage_of(n);
    if (stage < 0) continue;
    for (const auto& counts : node.strategy) {
      int64_t parts = 1;
      for (const int64_t count : counts) parts *= count;
      if (parts < 1 || ranks.count(stage) % parts == 0) continue;
      throw mesh::StrategyError(
          "cell \"{}\" on stage {}: strategy {} shares its {} among {} ranks, but the stage has {}: give the stage a "
          "multiple of {} ranks, or the cell another stage or strategy",
          node.source, stage, mesh::to_string(node.strategy), node.op, parts, ranks.count(stage), parts);
    }
  }
}

// The graph as stages of one kind plan it: with the strategies of the cells that are on such stages.
Graph with_strategies_of(const StagedPlan& plan, int kind) {
  Graph result = plan.micro;
  for (NodeId n = 0; n < result.num_nodes(); ++n) {
    const int stage = plan.placement.stage_of(n);
    if (stage < 0 || plan.kind_of(stage) == kind) continue;
    result.mutable_node(n).strategy.clear();
    result.mutable_node(n).grid = {};
  }
  return result;
}

class StagePlanMaker {
 public:
  StagePlanMaker(const Graph* update, const std::map<int, WithinStage>& within, const CompileOptions& options)
      : update_(update), within_(within), options_(options) {}

  StagedPlan run(const Graph& micro, const mesh::StageRanks& ranks, const StageOptions& stages) {
    check_equal(stages.num_stages, ranks.num_stages(), "stages that have ranks");
    plan_.ranks = ranks;
    plan_.micro = simplify(micro);
    // Whatever the schedule, what may pass from phase to phase is whole.
    StageOptions finest = stages;
    finest.split_backward = update_ != nullptr;
    share_parameters(plan_, finest, update_ != nullptr);
    plan_.options = finest;
    if (within_.begin()->second.plan.strategies) require_narrow_strategies(plan_.micro, plan_.placement, ranks);
    leaving_ = leaving_values(plan_.micro, plan_.placement);
    for (const int kind : kinds()) plan_micro(kind);
    // An evaluation gathers where it reads.
    if (update_ != nullptr) finest.gathered = plan_.placement.gathered = plan_.options.gathered;
    recompute(finest);
    for (auto& [kind, sized] : plan_.kinds) place_unsummed(sized.micro);
    verify(plan_.micro, &SizedPlan::micro);
    plan_.values = plan_.placement.values;
    // The sums of other stages are sent to the parameter's own.
    for (const auto& [accumulator, other] : finest.other_accumulators) {
      plan_.values[accumulator] = plan_.values.at(finest.accumulators.at(accumulator));
    }
    if (update_ == nullptr) return std::move(plan_);
    for (const int kind : kinds()) plan_sums(kind);
    plan_update();
    verify(plan_.update, &SizedPlan::update);
    return std::move(plan_);
  }

 private:
  std::set<int> kinds() const {
    std::set<int> found;
    for (int stage = 0; stage < plan_.ranks.num_stages(); ++stage) found.insert(plan_.kind_of(stage));
    return found;
  }

  // What stages of that kind are planned by. Parameters of several stages lie in no shards.
  PlanOptions plan_options(int kind) const {
    PlanOptions options = within_.at(kind).plan;
    for (const auto& [parameter, at] : plan_.placement.shared) options.optimizer_shards.erase(parameter);
    for (const auto& [accumulator, other] : plan_.options.other_accumulators) {
      if (options.partial_states.contains(other.of_owner)) options.partial_states.insert(accumulator);
    }
    return options;
  }

  // The plan of a micro-batch. Optimizer shards are gathered once a step, and their gradients scattered once:
  // micro-batches see whole parameters.
  void plan_micro(int kind) {
    const auto& [mesh, hints, given] = within_.at(kind);
    PlanOptions options = plan_options(kind);
    options.whole_sums = leaving_;
    const Graph graph = with_strategies_of(plan_, kind);
    SizedPlan& sized = plan_.kinds[kind];
    sized.micro = propagate(graph, mesh, hints, options);
    const auto shards = options.optimizer_shards;
    if (update_ != nullptr && !shards.empty()) {
      sized.with_shards = {plan_.micro, sized.micro};
      ShardingHints whole_hints = hints;
      for (const auto& parameter : shards) whole_hints.erase(parameter);
      options.optimizer_shards.clear();
      sized.micro = propagate(graph, mesh, whole_hints, options);
      plan_gather(kind, shards);
    }
    complete(sized.micro, leaving_);
  }

  void plan_gather(int kind, const std::set<std::string>& shards) {
    SizedPlan& sized = plan_.kinds.at(kind);
    Graph graph("gather");
    ShardingHints layouts;
    std::map<std::string, ir::Value> gathered;
    for (const auto& input : plan_.micro.inputs()) {
      if (!shards.contains(input.name) || plan_.kind_of(plan_.placement.values.at(input.name)) != kind) continue;
      const auto shard = sized.with_shards.plan.layout(input.value);
      const auto whole = sized.micro.layout(input.value);
      if (shard == whole) continue;
      layouts[input.name] = shard;
      layouts[gathered_name(input.name)] = whole;
      gathered[input.name] = graph.add_input(input.kind, input.name, plan_.micro.type(input.value));
    }
    for (const auto& [name, shard] : gathered) {
      graph.add_input(ir::InputKind::kState, gathered_name(name), shard.type());
      graph.add_output(gathered_name(name), shard);
      plan_.options.gathered.insert(name);
    }
    sized.gather.plan = propagate(graph, within_.at(kind).mesh, layouts);
    sized.gather.graph = std::move(graph);
  }

  // Makes the marks of cells that are to be recomputed true. What is computed again belongs to backward.
  void recompute(const StageOptions& stages) {
    const int num_nodes = plan_.micro.num_nodes();
    std::vector<Plan*> plans;
    for (auto& [kind, sized] : plan_.kinds) plans.push_back(&sized.micro);
    recompute_blocks(plan_.micro, plans, options_.partition);
    if (plan_.micro.num_nodes() != num_nodes) plan_.placement = place_on_stages(plan_.micro, stages);
    leaving_ = leaving_values(plan_.micro, plan_.placement);
    for (Plan* plan : plans) complete(*plan, leaving_);
  }

  // Accumulators that nothing is added to lie as the values that they get.
  void place_unsummed(Plan& plan) const {
    const auto& outputs = plan_.micro.outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!plan_.placement.unsummed.contains(outputs[i].name)) continue;
      const auto held = static_cast<size_t>(plan_.micro.find_input(outputs[i].name)->value);
      plan.outputs[i] = completed(plan.source_layout(outputs[i].value)).sharding;
      plan.values[held] = plan.outputs[i];
      plan.value_mesh[held] = plan.value_mesh[static_cast<size_t>(outputs[i].value)];
    }
  }

  // Sums that stages of this kind complete before they send them.
  void plan_sums(int kind) {
    Graph graph("sums");
    ShardingHints layouts;
    SizedPlan& sized = plan_.kinds.at(kind);
    for (const auto& [accumulator, other] : plan_.options.other_accumulators) {
      const int stage = plan_.placement.stage_of_chunk(other.chunk);
      if (plan_.kind_of(stage) != kind || !is_completed_first(plan_, accumulator)) continue;
      const ir::Input& input = *plan_.micro.find_input(accumulator);
      const Type& type = plan_.micro.type(input.value);
      layouts[accumulator] = sized.micro.layout(input.value);
      layouts[summed_name(accumulator)] = completed(sized.micro.layout(input.value));
      const ir::Value sum = graph.add_input(ir::InputKind::kState, accumulator, type);
      graph.add_input(ir::InputKind::kState, summed_name(accumulator), type);
      graph.add_output(summed_name(accumulator), sum);
    }
    sized.sums.plan = propagate(graph, within_.at(kind).mesh, layouts);
    sized.sums.graph = std::move(graph);
  }

  void plan_update() {
    plan_.update = simplify(sum_accumulators(*update_, plan_.options));
    plan_.rounds = place_update(plan_.update, plan_.values, plan_options(*kinds().begin()).partial_states);
    for (auto& [kind, sized] : plan_.kinds) {
      auto options = plan_options(kind);
      options.fixed.clear();
      options.whole_sums = values_between_rounds(plan_.update, plan_.rounds);
      sized.update = propagate(plan_.update, within_.at(kind).mesh, update_hints(kind), options);
      complete(sized.update, plan_.update, plan_.rounds);
    }
  }

  // Inputs of both graphs lie alike: as the micro-batch's plan has them. What all stages have is whole.
  ShardingHints update_hints(int kind) const {
    const auto& [mesh, given, options] = within_.at(kind);
    const SizedPlan& sized = plan_.kinds.at(kind);
    ShardingHints hints = given;
    for (const auto& input : plan_.update.inputs()) {
      if (plan_.values.at(input.name) != kEveryStage) continue;
      hints[input.name] = {mesh, mesh::Sharding::replicated(plan_.update.type(input.value).shape.ndim())};
    }
    for (const auto& input : plan_.micro.inputs()) {
      if (input.kind == ir::InputKind::kInput) continue;
      // Of the stages of this kind, where it is gathered: else it is whole in both.
      const bool is_gathered = sized.gather.graph.find_input(input.name) != nullptr;
      hints[input.name] = is_gathered
                              ? sized.with_shards.plan.layout(sized.with_shards.graph.find_input(input.name)->value)
                              : sized.micro.layout(input.value);
    }
    return hints;
  }

  void verify(const Graph& graph, Plan SizedPlan::*part) const {
    if (options_.verification == Verification::kNone) return;
    for (const auto& [kind, sized] : plan_.kinds) verify_plan_or_throw(graph, sized.*part);
  }

  const Graph* update_;
  const std::map<int, WithinStage>& within_;
  const CompileOptions& options_;
  std::set<ValueId> leaving_;
  StagedPlan plan_;
};

}  // namespace

StagedPlan plan_stages(const Graph& micro, const Graph* update, const mesh::StageRanks& ranks,
                       const std::map<int, WithinStage>& within, const StageOptions& stages,
                       const CompileOptions& options) {
  return StagePlanMaker(update, within, options).run(micro, ranks, stages);
}

StagedPlan plan_stages(const Graph& micro, const Graph* update, const mesh::Mesh& mesh, const ShardingHints& hints,
                       const StageOptions& stages, const CompileOptions& options) {
  const auto ranks = mesh::StageRanks::equal(stages.num_stages, static_cast<int>(mesh.ranks().size()));
  std::map<int, WithinStage> within;
  for (int stage = 0; stage < stages.num_stages; ++stage) {
    within.try_emplace(stages.kind_of(stage, ranks), WithinStage{mesh, hints, options.plan});
  }
  return plan_stages(micro, update, ranks, within, stages, options);
}

bool is_completed_first(const StagedPlan& plan, const std::string& accumulator) {
  const auto other = plan.options.other_accumulators.find(accumulator);
  if (other == plan.options.other_accumulators.end()) return false;
  const int from = plan.placement.stage_of_chunk(other->second.chunk);
  const int to = plan.placement.values.at(plan.options.accumulators.at(accumulator));
  return plan.kind_of(from) != plan.kind_of(to);
}

std::string summed_name(const std::string& accumulator) { return "sum." + accumulator; }

}  // namespace tessera::compiler
