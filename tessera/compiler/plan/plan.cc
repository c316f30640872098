#include "tessera/compiler/plan/plan.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/compiler/plan/strategy_propagation.h"
#include "tessera/mesh/strategy_error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Mesh;
using mesh::Sharding;

void check_hint(const std::string& name, const Type& type, const mesh::Layout& hint) {
  try {
    mesh::validate(type.shape, hint);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("input \"{}\" {}: {}", name, type, error.what());
  }
}

std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> uses(static_cast<size_t>(graph.num_values()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) ++uses[static_cast<size_t>(v)];
  }
  for (const auto& output : graph.outputs()) ++uses[static_cast<size_t>(output.value)];
  return uses;
}

// The parameter that a value is, or is a cast of; kNone for others.
ValueId parameter_behind(const Graph& graph, ValueId v) {
  while (graph.info(v).node != ir::kNone) {
    const Node& producer = graph.node(graph.info(v).node);
    if (producer.op != "cast" || !producer.strategy.empty()) return ir::kNone;
    v = producer.inputs[0];
  }
  return graph.inputs()[static_cast<size_t>(graph.info(v).index)].kind == ir::InputKind::kParameter ? v : ir::kNone;
}

// The sharding that the strategies of its users give each parameter. They must agree.
std::map<ValueId, Placed> shardings_by_strategies(const Graph& graph, const MeshChoice& choice) {
  struct Use {
    NodeId node;
    Placed placed;
  };
  std::map<ValueId, std::vector<Use>> uses;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    if (node.strategy.empty()) continue;
    const auto [mesh, factors] = factors_of_strategy(graph, n, choice);
    const auto operands = operand_shardings(ops::rule_of(graph, n), factors);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId parameter = parameter_behind(graph, node.inputs[i]);
      if (parameter != ir::kNone) uses[parameter].push_back({n, {mesh, operands[i]}});
    }
  }
  std::map<ValueId, Placed> agreed;
  for (const auto& [parameter, list] : uses) {
    const Placed& first = list[0].placed;
    agreed[parameter] = first;
    const auto& shape = graph.type(parameter).shape;
    const auto is_alike = [&](const Use& use) {
      if (use.placed.mesh == first.mesh) return use.placed.sharding == first.sharding;
      return mesh::all_slices(shape, choice.mesh(use.placed.mesh), use.placed.sharding) ==
             mesh::all_slices(shape, choice.mesh(first.mesh), first.sharding);
    };
    if (std::all_of(list.begin(), list.end(), is_alike)) continue;
    std::string text;
    for (const Use& use : list) {
      text += fmt::format("{}{} by {} {}", text.empty() ? "" : ", ",
                          use.placed.sharding.to_string(choice.mesh(use.placed.mesh)), graph.node_name(use.node),
                          mesh::to_string(graph.node(use.node).strategy));
    }
    throw mesh::StrategyError(
        "parameter \"{}\" is split in several ways: {}; the operators that use one parameter must split it alike",
        graph.value_name(parameter), text);
  }
  return agreed;
}

// The replicas of a parameter share its rows, and with them the states and the work of the optimizer: neighbouring
// ranks first, as many as the options allow.
void add_optimizer_shard(Plan& plan, const ir::Input& input, const Type& type, int max_parts) {
  auto& sharding = plan.values[static_cast<size_t>(input.value)];
  if (type.shape.ndim() == 0) return;
  const Mesh& mesh = plan.mesh_of(input.value);
  std::vector<int> axes;
  int64_t parts = 1;
  for (int axis = mesh.num_axes() - 1; axis >= 0; --axis) {
    const int64_t size = mesh.axis(axis).size;
    if (size == 1 || sharding.splits(axis)) continue;
    if (max_parts > 0 && parts * size > max_parts) break;
    parts *= size;
    axes.insert(axes.begin(), axis);
  }
  sharding.dims[0].insert(sharding.dims[0].end(), axes.begin(), axes.end());
}

// Where the input lies before anyone has read it.
void place_input(PlanState& state, const ir::Input& input, const ShardingHints& hints,
                 const std::map<ValueId, Placed>& agreed) {
  const auto v = static_cast<size_t>(input.value);
  const Type& type = state.graph.type(input.value);
  const Placed whole{0, Sharding::replicated(type.shape.ndim())};
  const auto by_strategies = agreed.find(input.value);
  Placed placed = by_strategies != agreed.end() ? by_strategies->second : whole;
  const Placed read_as = placed;
  const auto hint = hints.find(input.name);
  if (hint != hints.end()) placed = state.mesh_choice.restate(hint->second);
  state.plan.values[v] = placed.sharding;
  state.plan.value_mesh[v] = placed.mesh;
  state.derived[v] = input.kind == ir::InputKind::kInput;
  const bool is_shard = state.options.optimizer_shards.contains(input.name);
  state.unset[v] = input.kind != ir::InputKind::kInput && hint == hints.end() && by_strategies == agreed.end() &&
                   !(is_shard && input.kind == ir::InputKind::kParameter);
  state.may_hold_partial[v] = state.options.partial_states.contains(input.name);
  if (!is_shard) return;
  state.read_as[input.value] = read_as;
  if (hint == hints.end()) add_optimizer_shard(state.plan, input, type, state.options.optimizer_shard_size);
}

}  // namespace

Plan propagate(const Graph& graph, const Mesh& mesh, const ShardingHints& hints, const PlanOptions& options) {
  std::vector<mesh::Layout> present;
  for (const auto& input : graph.inputs()) {
    const auto hint = hints.find(input.name);
    if (hint == hints.end()) continue;
    check_hint(input.name, graph.type(input.value), hint->second);
    present.push_back(hint->second);
  }
  // Optimizer shards of a size: a cut of the mesh where they end.
  const int shard = options.optimizer_shards.empty() ? 0 : options.optimizer_shard_size;
  if (shard > 1 && mesh.size() % shard == 0 && mesh.size() > shard) {
    present.push_back({Mesh({{"replica", mesh.size() / shard}, {"shard", shard}}, mesh.ranks()), {}});
  }
  const MeshChoice choice(mesh, options.strategies ? &graph : nullptr, present);
  Plan plan{.meshes = choice.meshes(), .copies = options.copies};
  plan.values.resize(static_cast<size_t>(graph.num_values()));
  plan.value_mesh.resize(plan.values.size());
  plan.operands.resize(static_cast<size_t>(graph.num_nodes()));
  plan.factors.resize(plan.operands.size());
  plan.node_mesh.resize(plan.operands.size());
  PlanState state{.graph = graph, .mesh_choice = choice, .options = options, .plan = plan};
  state.unset.resize(plan.values.size());
  state.may_hold_partial.resize(plan.values.size());
  state.derived.resize(plan.values.size());
  state.num_uses = count_uses(graph);
  state.user.resize(plan.values.size(), ir::kNone);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) state.user[static_cast<size_t>(v)] = n;
  }

  std::map<ValueId, Placed> agreed;
  if (options.strategies) agreed = shardings_by_strategies(graph, choice);
  if (options.strategies && options.propagate_strategies) state.propagated = propagate_strategies(graph, choice);
  for (const auto& input : graph.inputs()) place_input(state, input, hints, agreed);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) plan_node(state, n);

  for (const auto& output : graph.outputs()) {
    Sharding wanted = plan.values[static_cast<size_t>(output.value)];
    wanted.partial.clear();
    if (options.whole_results) wanted = Sharding::replicated(static_cast<int>(wanted.dims.size()));
    // A parameter's new value goes where the parameter is.
    if (const ir::Input* input = graph.find_input(output.name)) wanted = plan.values[static_cast<size_t>(input->value)];
    plan.outputs.push_back(wanted);
  }
  return plan;
}

mesh::Layout Plan::output_layout(const Graph& graph, size_t index) const {
  const auto& output = graph.outputs()[index];
  const ir::Input* input = graph.find_input(output.name);
  return {mesh_of(input != nullptr ? input->value : output.value), outputs[index]};
}

ShardingHints on_mesh(const Mesh& mesh, const std::map<std::string, Sharding>& shardings) {
  ShardingHints hints;
  for (const auto& [name, sharding] : shardings) hints[name] = {mesh, sharding};
  return hints;
}

std::string print(const Graph& graph, const Plan& plan) {
  std::string text = fmt::format("plan {} mesh", graph.name());
  for (const Mesh& mesh : plan.meshes) text += " " + mesh.to_string();
  text += "\n";
  const auto sharding_of = [&](ir::ValueId v) { return plan.layout(v).sharding.to_string(plan.mesh_of(v)); };
  for (const auto& input : graph.inputs()) text += fmt::format("  {} {}\n", input.name, sharding_of(input.value));
  int number = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      text += fmt::format("  %{} {}", ++number, sharding_of(node.outputs[o]));
      if (o == 0) {
        text += " = " + node.op;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const auto wanted = plan.operand_layout(n, i).sharding.to_string(plan.mesh_of_node(n));
          const auto produced = sharding_of(node.inputs[i]);
          if (wanted != produced) text += fmt::format("  ({} -> {})", produced, wanted);
        }
      }
      text += "\n";
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto layout = plan.output_layout(graph, i);
    text += fmt::format("  return {} {}\n", graph.outputs()[i].name, layout.sharding.to_string(layout.mesh));
  }
  return text;
}

}  // namespace tessera::compiler
