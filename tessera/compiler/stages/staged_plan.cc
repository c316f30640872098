#include "tessera/compiler/stages/staged_plan.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/compiler/recompute_blocks.h"
#include "tessera/compiler/verify/verify_plan.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

// Values that other phases or stages read: they leave what makes them whole.
std::set<ValueId> leaving_values(const Graph& graph, const StagePlacement& placement) {
  std::set<ValueId> leaving;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) {
      const NodeId producer = graph.info(v).node;
      if (producer == ir::kNone) continue;
      const bool crosses =
          placement.stage_of(producer) != placement.stage_of(n) && placement.stage_of(n) != kEveryStage;
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

// Which stage has each parameter and state of the update: those that it makes new values of together are on one.
class UpdateOwners {
 public:
  UpdateOwners(const Graph& graph, std::map<std::string, int>& values) : graph_(graph), values_(values) {}

  void run() {
    for (const auto& output : graph_.outputs()) {
      if (graph_.find_input(output.name) == nullptr) continue;
      const int stage = stage_of(output.value).first;
      const auto it = values_.find(output.name);
      const int own = it == values_.end() || it->second == kEveryStage ? stage : it->second;
      if (stage != own && stage != kEveryStage) refuse(output.name, own, stage);
      values_[output.name] = own;
    }
    for (const auto& input : graph_.inputs()) {
      if (input.kind != ir::InputKind::kInput) values_.try_emplace(input.name, kEveryStage);
    }
  }

 private:
  // Of all that the value is made of, the one stage that has it.
  std::pair<int, std::string> stage_of(ValueId v) {
    const auto& info = graph_.info(v);
    if (info.node == ir::kNone) {
      const auto& name = graph_.inputs()[static_cast<size_t>(info.index)].name;
      const auto it = values_.find(name);
      return {it == values_.end() ? kEveryStage : it->second, name};
    }
    if (const auto known = known_.find(info.node); known != known_.end()) return known->second;
    std::pair<int, std::string> found{kEveryStage, ""};
    for (const ValueId operand : graph_.node(info.node).inputs) {
      const auto other = stage_of(operand);
      if (other.first == kEveryStage || other.first == found.first) continue;
      if (found.first != kEveryStage) refuse_both(info.node, found, other);
      found = other;
    }
    return known_[info.node] = found;
  }

  [[noreturn]] void refuse_both(NodeId n, const std::pair<int, std::string>& a,
                                const std::pair<int, std::string>& b) const {
    throw InvalidArgument(
        "{} of the optimizer reads \"{}\" of stage {} and \"{}\" of stage {}: a pipeline updates each stage by itself; "
        "norms over all gradients need one stage",
        graph_.node_name(n), a.second, a.first, b.second, b.first);
  }
  [[noreturn]] static void refuse(const std::string& name, int own, int stage) {
    throw InvalidArgument(
        "the update of \"{}\" of stage {} reads values of stage {}: a pipeline updates each stage by "
        "itself",
        name, own, stage);
  }

  const Graph& graph_;
  std::map<std::string, int>& values_;
  std::map<NodeId, std::pair<int, std::string>> known_;
};

// Inputs of both graphs lie alike: as the micro-batch's plan has them. What all stages have is whole.
ShardingHints update_hints(const StagedPlan& plan, const mesh::Mesh& mesh, ShardingHints hints) {
  for (const auto& input : plan.update.graph.inputs()) {
    if (plan.values.at(input.name) != kEveryStage) continue;
    hints[input.name] = {mesh, mesh::Sharding::replicated(plan.update.graph.type(input.value).shape.ndim())};
  }
  for (const auto& input : plan.micro.graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) hints[input.name] = plan.micro.plan.layout(input.value);
  }
  return hints;
}

}  // namespace

std::vector<int> StagedPlan::ranks_of(int stage) const {
  std::vector<int> ranks(static_cast<size_t>(ranks_per_stage()));
  std::iota(ranks.begin(), ranks.end(), stage * ranks_per_stage());
  return ranks;
}

ShardingHints StagedPlan::layouts(const StageOptions& options) const {
  ShardingHints result;
  const auto add = [&](const PlannedPart& part) {
    for (const auto& input : part.graph.inputs()) {
      if (input.kind == ir::InputKind::kInput || options.accumulators.contains(input.name)) continue;
      const int stage = values.at(input.name);
      if (stage == kEveryStage) continue;
      auto layout = part.plan.layout(input.value);
      layout.mesh = on_ranks(layout.mesh, ranks_of(stage));
      result.try_emplace(input.name, std::move(layout));
    }
  };
  add(micro);
  add(update);
  return result;
}

StagedPlan plan_stages(const Graph& micro, const Graph* update, const mesh::Mesh& mesh, const ShardingHints& hints,
                       const StageOptions& stages, const CompileOptions& options) {
  StagedPlan result;
  result.micro.graph = simplify(micro);
  // Whatever the schedule, what may pass from phase to phase is whole.
  StageOptions finest = stages;
  finest.split_backward = update != nullptr;
  result.placement = place_on_stages(result.micro.graph, finest);
  PlanOptions plan_options = options.plan;
  plan_options.whole_sums = leaving_values(result.micro.graph, result.placement);
  result.micro.plan = propagate(result.micro.graph, mesh, hints, plan_options);
  complete(result.micro.plan, plan_options.whole_sums);
  const int num_nodes = result.micro.graph.num_nodes();
  recompute_blocks(result.micro.graph, result.micro.plan, options.partition);
  if (result.micro.graph.num_nodes() != num_nodes) {
    // What is computed again belongs to backward.
    result.placement = place_on_stages(result.micro.graph, finest);
    complete(result.micro.plan, leaving_values(result.micro.graph, result.placement));
  }
  if (options.verification != Verification::kNone) verify_plan_or_throw(result.micro.graph, result.micro.plan);
  result.values = result.placement.values;
  if (update == nullptr) return result;
  result.update.graph = simplify(*update);
  UpdateOwners(result.update.graph, result.values).run();
  PlanOptions update_options = options.plan;
  update_options.fixed.clear();
  result.update.plan = propagate(result.update.graph, mesh, update_hints(result, mesh, hints), update_options);
  if (options.verification != Verification::kNone) verify_plan_or_throw(result.update.graph, result.update.plan);
  return result;
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
