#include "tessera/compiler/search/choices.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "tessera/base/error.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;

struct Factor {
  std::string name;
  int64_t size = 0;  // the smallest dim that it names
};

std::vector<Factor> factors_of(const Graph& graph, const Node& node, const ops::IndexRule& rule) {
  std::vector<Factor> factors;
  for (size_t i = 0; i < rule.inputs.size(); ++i) {
    const Shape& shape = graph.type(node.inputs[i]).shape;
    for (size_t dim = 0; dim < rule.inputs[i].size(); ++dim) {
      const auto& name = rule.inputs[i][dim];
      if (name.empty()) continue;
      const auto it = std::find_if(factors.begin(), factors.end(), [&](const Factor& f) { return f.name == name; });
      const int64_t size = shape[static_cast<int>(dim)];
      if (it == factors.end()) {
        factors.push_back({name, size});
      } else {
        it->size = std::min(it->size, size);
      }
    }
  }
  return factors;
}

// All numbers of parts of the factors from `at` on, later factors first, so that nothing split comes first.
void enumerate(const std::vector<Factor>& factors, size_t at, int64_t ranks_left, const CandidateOptions& options,
               std::map<std::string, int64_t>& parts, const std::function<void()>& found) {
  if (at == factors.size()) {
    if (ranks_left == 1 || !options.use_all_ranks) found();
    return;
  }
  for (int64_t count = 1; count <= ranks_left; ++count) {
    if (ranks_left % count != 0) continue;
    if (count > 1 && count > factors[at].size && !options.allow_empty_parts) break;
    parts[factors[at].name] = count;
    enumerate(factors, at + 1, ranks_left / count, options, parts, found);
  }
}

// The node on its own: its operands are the graph's inputs.
Graph alone(const Graph& graph, NodeId id, const mesh::Strategy& strategy = {}) {
  const Node& node = graph.node(id);
  Graph result(node.op);
  std::vector<ir::Value> inputs;
  for (const auto v : node.inputs) {
    inputs.push_back(result.add_input(ir::InputKind::kInput, fmt::format("in{}", inputs.size()), graph.type(v)));
  }
  const ir::SourceScope scope(result, node.source);
  const auto outputs = ops::apply(result, node.op, inputs, node.attributes);
  for (const auto& output : outputs) result.add_output(fmt::format("out{}", result.outputs().size()), output);
  result.mutable_node(result.info(outputs[0].id()).node).strategy = strategy;
  return result;
}

LocalWork work_of(const Graph& local) {
  LocalWork work;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    const Node& step = local.node(n);
    const auto& def = ops::OpRegistry::instance().get(step.op);
    if (def.collective != nullptr) {
      const Ints& ranks = step.attributes.get_ints("ranks");
      const auto call = ops::call_of(local, step);
      work.collectives.push_back({{ranks.begin(), ranks.end()},
                                  def.collective->traffic(call).received_bytes(call.own()),
                                  def.collective->num_steps});
      continue;
    }
    std::vector<Type> inputs;
    std::vector<Type> outputs;
    for (const auto v : step.inputs) inputs.push_back(local.type(v));
    for (const auto v : step.outputs) outputs.push_back(local.type(v));
    const auto own = ops::cost_of(def, step.attributes, inputs, outputs);
    work.flops += own.flops;
    work.bytes += own.bytes;
  }
  return work;
}

// What an axis can be used for: a factor, or operands that pass partial sums; neither: nothing.
struct AxisUse {
  std::string factor;
  std::vector<int> through;
};

std::vector<AxisUse> uses_of_axis(const std::vector<Factor>& factors, const ops::OpDef& def) {
  std::vector<AxisUse> uses{{}};
  for (const Factor& factor : factors) uses.push_back({factor.name, {}});
  for (const auto& operands : def.linear_in) uses.push_back({"", operands});
  return uses;
}

}  // namespace

std::vector<NodeChoice> possible_choices(const Graph& graph, NodeId id, const mesh::Mesh& mesh) {
  const Node& node = graph.node(id);
  if (!node.strategy.empty()) {
    const MeshChoice held(mesh, nullptr, {});
    return {{.factors = factors_of_strategy(graph, id, held).factors}};
  }
  const auto& def = ops::OpRegistry::instance().get(node.op);
  const auto rule = ops::rule_of(graph, id);
  const auto factors = factors_of(graph, node, rule);
  const auto uses = uses_of_axis(factors, def);
  std::vector<NodeChoice> choices;
  std::vector<size_t> use(static_cast<size_t>(mesh.num_axes()), 0);
  while (true) {
    NodeChoice choice;
    std::map<std::string, int64_t> parts;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      const AxisUse& taken = uses[use[static_cast<size_t>(axis)]];
      if (!taken.factor.empty()) {
        choice.factors[taken.factor].push_back(axis);
        parts.try_emplace(taken.factor, 1).first->second *= mesh.axis(axis).size;
      } else if (!taken.through.empty()) {
        choice.through[axis] = taken.through;
      }
    }
    const bool is_empty = std::any_of(factors.begin(), factors.end(), [&](const Factor& factor) {
      const auto it = parts.find(factor.name);
      return it != parts.end() && it->second > std::max<int64_t>(factor.size, 1);
    });
    if (!is_empty) choices.push_back(std::move(choice));
    size_t axis = use.size();
    while (axis > 0 && ++use[axis - 1] == uses.size()) use[--axis] = 0;
    if (axis == 0) return choices;
  }
}

LocalWork work_of_choice(const Graph& graph, NodeId id, const mesh::Mesh& mesh, const NodeChoice& choice,
                         const PartitionOptions& options) {
  const Graph single = alone(graph, id);
  const NodeId node = single.num_nodes() - 1;
  const auto rule = ops::rule_of(single, node);
  auto operands = operand_shardings(rule, choice.factors);
  auto results = result_shardings(rule, choice.factors);
  add_blocks(single, node, mesh, choice.factors, choice.blocks, operands, results);
  ShardingHints hints;
  for (size_t i = 0; i < operands.size(); ++i) hints[single.inputs()[i].name] = {mesh, operands[i]};
  // Results stay as they are left: nothing is completed.
  Graph open = single;
  open.clear_outputs();
  const auto plan =
      propagate(open, mesh, hints, {.fixed = {{node, {.factors = choice.factors, .blocks = choice.blocks}}}});
  return work_of(partition(open, plan, mesh.ranks()[0], options));
}

std::vector<mesh::Strategy> possible_strategies(const Graph& graph, NodeId id, int num_ranks,
                                                const CandidateOptions& options) {
  if (num_ranks < 1) throw InvalidArgument("strategies need at least 1 rank, got {}", num_ranks);
  const Node& node = graph.node(id);
  const auto rule = ops::rule_of(graph, id);
  const auto factors = factors_of(graph, node, rule);
  std::vector<mesh::Strategy> strategies;
  std::map<std::string, int64_t> parts;
  enumerate(factors, 0, num_ranks, options, parts, [&] {
    mesh::Strategy strategy;
    for (const auto& dims : rule.inputs) {
      auto& tuple = strategy.emplace_back();
      for (const auto& name : dims) tuple.push_back(name.empty() ? 1 : parts.at(name));
    }
    strategies.push_back(std::move(strategy));
  });
  return strategies;
}

StrategyCost cost_of_strategy(const Graph& graph, NodeId id, const mesh::Strategy& strategy, int num_ranks,
                              const PartitionOptions& options) {
  const Graph single = alone(graph, id, strategy);
  const mesh::Mesh ranks({{"ranks", num_ranks}});
  const MeshChoice choice(ranks, &single, {});
  const NodeId node = single.num_nodes() - 1;
  const auto [mesh, factors] = factors_of_strategy(single, node, choice);
  const auto operands = operand_shardings(ops::rule_of(single, node), factors);
  ShardingHints hints;
  for (size_t i = 0; i < operands.size(); ++i) hints[single.inputs()[i].name] = {choice.mesh(mesh), operands[i]};
  const auto plan = propagate(single, ranks, hints);
  StrategyCost cost;
  const LocalWork work = work_of(partition(single, plan, 0, options));
  cost.flops = work.flops;
  cost.bytes = work.bytes;
  for (const auto& collective : work.collectives) cost.received_bytes += collective.received_bytes;
  return cost;
}

}  // namespace tessera::compiler
