#include "tessera/compiler/plan.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/sharding/node_planner.h"
#include "tessera/ops/op_def.h"

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
std::map<ValueId, Sharding> shardings_by_strategies(const Graph& graph, const MeshChoice& choice) {
  struct Use {
    NodeId node;
    Sharding sharding;
  };
  std::map<ValueId, std::vector<Use>> uses;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    if (node.strategy.empty()) continue;
    const auto factors = factors_of_strategy(graph, n, choice);
    const auto operands = operand_shardings(ops::rule_of(graph, n), factors);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId parameter = parameter_behind(graph, node.inputs[i]);
      if (parameter != ir::kNone) uses[parameter].push_back({n, operands[i]});
    }
  }
  std::map<ValueId, Sharding> agreed;
  for (const auto& [parameter, list] : uses) {
    const Sharding& first = list[0].sharding;
    agreed[parameter] = first;
    if (std::all_of(list.begin(), list.end(), [&](const Use& use) { return use.sharding == first; })) continue;
    std::string text;
    for (const Use& use : list) {
      text += fmt::format("{}{} by {} {}", text.empty() ? "" : ", ", use.sharding.to_string(choice.mesh()),
                          graph.node_name(use.node), mesh::to_string(graph.node(use.node).strategy));
    }
    throw InvalidArgument(
        "parameter \"{}\" is split in several ways: {}; the operators that use one parameter must split it alike",
        graph.value_name(parameter), text);
  }
  return agreed;
}

// The replicas of a parameter share its rows, and with them the states and the work of the optimizer.
void add_optimizer_shard(Plan& plan, const ir::Input& input, const Type& type) {
  auto& sharding = plan.values[static_cast<size_t>(input.value)];
  if (type.shape.ndim() == 0) return;
  for (int axis = 0; axis < plan.mesh.num_axes(); ++axis) {
    if (plan.mesh.axis(axis).size > 1 && !sharding.splits(axis)) sharding.dims[0].push_back(axis);
  }
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
  const MeshChoice choice(mesh, options.strategies ? &graph : nullptr, present);
  Plan plan{.mesh = choice.mesh()};
  plan.values.resize(static_cast<size_t>(graph.num_values()));
  plan.operands.resize(static_cast<size_t>(graph.num_nodes()));
  plan.factors.resize(static_cast<size_t>(graph.num_nodes()));
  PlanState state{.graph = graph, .mesh_choice = choice, .options = options, .plan = plan};
  state.unset.resize(plan.values.size());
  state.derived.resize(plan.values.size());
  state.num_uses = count_uses(graph);

  std::map<ValueId, Sharding> agreed;
  if (options.strategies) agreed = shardings_by_strategies(graph, choice);
  for (const auto& input : graph.inputs()) {
    const auto v = static_cast<size_t>(input.value);
    plan.values[v] = Sharding::replicated(graph.type(input.value).shape.ndim());
    state.derived[v] = input.kind == ir::InputKind::kInput;
    if (const auto hint = hints.find(input.name); hint != hints.end()) {
      plan.values[v] = choice.restate(hint->second);
    } else if (const auto it = agreed.find(input.value); it != agreed.end()) {
      plan.values[v] = it->second;
    } else {
      state.unset[v] = input.kind == ir::InputKind::kState;
    }
    if (options.optimizer_shards.contains(input.name)) {
      const auto it = agreed.find(input.value);
      state.read_as[input.value] =
          it != agreed.end() ? it->second : Sharding::replicated(graph.type(input.value).shape.ndim());
      add_optimizer_shard(plan, input, graph.type(input.value));
    }
  }
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

ShardingHints on_mesh(const Mesh& mesh, const std::map<std::string, Sharding>& shardings) {
  ShardingHints hints;
  for (const auto& [name, sharding] : shardings) hints[name] = {mesh, sharding};
  return hints;
}

Plan single_device_plan(const Graph& graph) { return propagate(graph, Mesh({{"data", 1}}), {}); }

std::string print(const Graph& graph, const Plan& plan) {
  std::string text = fmt::format("plan {} mesh {}\n", graph.name(), plan.mesh.to_string());
  const auto sharding_of = [&](ir::ValueId v) { return plan.values[static_cast<size_t>(v)].to_string(plan.mesh); };
  for (const auto& input : graph.inputs()) text += fmt::format("  {} {}\n", input.name, sharding_of(input.value));
  int number = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      text += fmt::format("  %{} {}", ++number, sharding_of(node.outputs[o]));
      if (o == 0) {
        text += " = " + node.op;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const auto& wanted = plan.operands[static_cast<size_t>(n)][i];
          const auto& produced = plan.values[static_cast<size_t>(node.inputs[i])];
          if (!(wanted == produced)) {
            text += fmt::format("  ({} -> {})", produced.to_string(plan.mesh), wanted.to_string(plan.mesh));
          }
        }
      }
      text += "\n";
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    text += fmt::format("  return {} {}\n", graph.outputs()[i].name, plan.outputs[i].to_string(plan.mesh));
  }
  return text;
}

}  // namespace tessera::compiler
