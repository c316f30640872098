#include "tessera/compiler/recompute_blocks.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/repeat.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// A parameter, or a cast of one.
bool is_parameter(const Graph& graph, ValueId v) {
  while (graph.info(v).node != ir::kNone) {
    const Node& producer = graph.node(graph.info(v).node);
    if (producer.op != "cast") return false;
    v = producer.inputs[0];
  }
  return graph.inputs()[static_cast<size_t>(graph.info(v).index)].kind == ir::InputKind::kParameter;
}

// By node: whether it communicates itself, as one that fetches what its window wants from its neighbours.
std::vector<bool> find_communicating(const Graph& logical, const Plan& plan, const PartitionOptions& options) {
  std::vector<LogicalStep> steps;
  const Graph local = partition(logical, plan, plan.ranks()[0], options, nullptr, &steps);
  std::vector<bool> communicates(static_cast<size_t>(logical.num_nodes()));
  for (const LogicalStep& step : steps) {
    for (NodeId n = step.begin; n < step.end; ++n) {
      if (ops::is_collective(local.node(n))) communicates[static_cast<size_t>(step.node)] = true;
    }
  }
  return communicates;
}

// By value: whether a forward node reads it otherwise than it was made.
std::vector<bool> find_moved(const Graph& logical, const Plan& plan) {
  std::vector<bool> moved(static_cast<size_t>(logical.num_values()));
  for (NodeId n = 0; n < logical.num_nodes(); ++n) {
    const Node& node = logical.node(n);
    if (node.forward != ir::kNone) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!(plan.layout(node.inputs[i]) == plan.operand_layout(n, i)))
        moved[static_cast<size_t>(node.inputs[i])] = true;
    }
  }
  return moved;
}

// By value: whether something that is no gradient reads it outside of the block that it is made in.
std::vector<bool> find_read_outside(const Graph& logical) {
  std::vector<bool> outside(static_cast<size_t>(logical.num_values()));
  for (const auto& output : logical.outputs()) outside[static_cast<size_t>(output.value)] = true;
  for (NodeId n = 0; n < logical.num_nodes(); ++n) {
    const Node& node = logical.node(n);
    if (node.forward != ir::kNone) continue;
    for (const ValueId v : node.inputs) {
      const NodeId from = logical.info(v).node;
      if (from != ir::kNone && logical.node(from).recompute.block != node.recompute.block) {
        outside[static_cast<size_t>(v)] = true;
      }
    }
  }
  return outside;
}

std::vector<bool> find_dropped(const Graph& logical, const Plan& plan, const PartitionOptions& options) {
  const auto outside = find_read_outside(logical);
  const auto moved = find_moved(logical, plan);
  std::vector<bool> communicating;
  std::vector<bool> dropped(static_cast<size_t>(logical.num_values()));
  for (NodeId n = 0; n < logical.num_nodes(); ++n) {
    const Node& node = logical.node(n);
    if (node.recompute.block == 0 || node.forward != ir::kNone) continue;
    // The two ends of a transfer are two ranks' programs: it happens once.
    if (const auto* collective = ops::collective_of(node); collective != nullptr && collective->is_transfer()) continue;
    if (!node.recompute.repeats_collectives) {
      if (communicating.empty()) communicating = find_communicating(logical, plan, options);
      if (communicating[static_cast<size_t>(n)]) continue;
    }
    for (const ValueId v : node.outputs) {
      const auto at = static_cast<size_t>(v);
      const bool may_move =
          is_parameter(logical, v) ? node.recompute.gathers_parameters : node.recompute.repeats_collectives;
      dropped[at] = !outside[at] && (may_move || !moved[at]);
    }
  }
  return dropped;
}

// The plan of the old graph for the new one: nodes that repeat others are split as those are.
Plan plan_of(const Repeated& repeated, const Graph& old, const Plan& plan) {
  const Graph& graph = repeated.graph;
  Plan result{.meshes = plan.meshes};
  result.value_mesh.resize(static_cast<size_t>(graph.num_values()));
  result.values.resize(result.value_mesh.size());
  result.outputs = plan.outputs;
  const auto set = [&](ValueId now, ValueId before) {
    result.value_mesh[static_cast<size_t>(now)] = plan.value_mesh[static_cast<size_t>(before)];
    result.values[static_cast<size_t>(now)] = plan.values[static_cast<size_t>(before)];
  };
  for (const auto& input : old.inputs()) set(graph.find_input(input.name)->value, input.value);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const NodeId from = repeated.origin[static_cast<size_t>(n)];
    const auto at = static_cast<size_t>(from);
    result.node_mesh.push_back(plan.node_mesh[at]);
    result.operands.push_back(plan.operands[at]);
    result.factors.push_back(plan.factors[at]);
    for (size_t i = 0; i < graph.node(n).outputs.size(); ++i) set(graph.node(n).outputs[i], old.node(from).outputs[i]);
  }
  return result;
}

}  // namespace

void recompute_blocks(Graph& logical, Plan& plan, const PartitionOptions& options) {
  recompute_blocks(logical, std::vector<Plan*>{&plan}, options);
}

void recompute_blocks(Graph& logical, const std::vector<Plan*>& plans, const PartitionOptions& options) {
  bool any = false;
  for (NodeId n = 0; n < logical.num_nodes(); ++n) any = any || logical.node(n).recompute.block > 0;
  if (!any) return;
  std::vector<bool> dropped(static_cast<size_t>(logical.num_values()), true);
  for (const Plan* plan : plans) {
    const auto by_plan = find_dropped(logical, *plan, options);
    for (size_t v = 0; v < dropped.size(); ++v) dropped[v] = dropped[v] && by_plan[v];
  }
  auto repeated = repeat_for_gradients(logical, dropped);
  for (Plan* plan : plans) *plan = plan_of(repeated, logical, *plan);
  logical = std::move(repeated.graph);
}

}  // namespace tessera::compiler
