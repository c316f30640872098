#include "tests/laws/mutants.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::laws {
namespace {

using compiler::Plan;
using compiler::RankGraph;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Partial;
using mesh::Reduction;
using mesh::Sharding;

// Faults of one sharding, as a wrong rule or planner would make it. Each returns whether there was something to change.
// -----------------------------------------------------------------------------------------------------------------

bool forget_split(Sharding& s, const mesh::Mesh&) {
  for (auto& axes : s.dims) {
    if (axes.empty()) continue;
    axes.pop_back();
    return true;
  }
  return false;
}

bool move_split(Sharding& s, const mesh::Mesh&) {
  for (size_t dim = 0; dim < s.dims.size() && s.dims.size() > 1; ++dim) {
    if (s.dims[dim].empty()) continue;
    s.dims[(dim + 1) % s.dims.size()].push_back(s.dims[dim].back());
    s.dims[dim].pop_back();
    return true;
  }
  return false;
}

bool reverse_nesting(Sharding& s, const mesh::Mesh&) {
  for (auto& axes : s.dims) {
    if (axes.size() < 2) continue;
    std::reverse(axes.begin(), axes.end());
    return true;
  }
  return false;
}

bool swap_axes(Sharding& s, const mesh::Mesh& mesh) {
  if (mesh.num_axes() < 2 || mesh.axis(0).size != mesh.axis(1).size || s.splits(0) == s.splits(1)) return false;
  for (auto& axes : s.dims) {
    for (int& axis : axes) axis = axis == 0 ? 1 : axis == 1 ? 0 : axis;
  }
  for (auto& partial : s.partial) partial.axis = partial.axis == 0 ? 1 : partial.axis == 1 ? 0 : partial.axis;
  std::sort(s.partial.begin(), s.partial.end(), [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
  return true;
}

bool drop_partial(Sharding& s, const mesh::Mesh&) {
  if (s.partial.empty()) return false;
  s.partial.erase(s.partial.begin());
  return true;
}

bool change_reduction(Sharding& s, Reduction to) {
  bool changed = false;
  for (auto& partial : s.partial) {
    changed = changed || partial.reduction != to;
    partial.reduction = to;
  }
  return changed;
}
bool complete_by_sum(Sharding& s, const mesh::Mesh&) { return change_reduction(s, Reduction::kSum); }
bool complete_by_max(Sharding& s, const mesh::Mesh&) { return change_reduction(s, Reduction::kMax); }
bool complete_by_min(Sharding& s, const mesh::Mesh&) { return change_reduction(s, Reduction::kMin); }
bool complete_by_prod(Sharding& s, const mesh::Mesh&) { return change_reduction(s, Reduction::kProd); }

// A replicated value is summed once more.
bool add_partial(Sharding& s, const mesh::Mesh& mesh) {
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const bool is_partial =
        std::any_of(s.partial.begin(), s.partial.end(), [axis](const Partial& p) { return p.axis == axis; });
    if (s.splits(axis) || is_partial || mesh.axis(axis).size == 1) continue;
    s.partial.push_back({axis, Reduction::kSum});
    std::sort(s.partial.begin(), s.partial.end(), [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
    return true;
  }
  return false;
}

struct ShardingFault {
  const char* text;
  bool (*make)(Sharding&, const mesh::Mesh&);
};

constexpr ShardingFault kOperandFaults[] = {{"arrives less split than the rank computes on", forget_split},
                                            {"is split along another dim", move_split},
                                            {"has the axes of a dim nested the other way round", reverse_nesting},
                                            {"is split by another axis of equal size", swap_axes}};
constexpr ShardingFault kResultFaults[] = {{"is said to be less split than it is", forget_split},
                                           {"is said to be split along another dim", move_split},
                                           {"has the axes of a dim nested the other way round", reverse_nesting},
                                           {"is said to be split by another axis of equal size", swap_axes},
                                           {"is taken as whole where it is partial", drop_partial},
                                           {"is completed by a sum", complete_by_sum},
                                           {"is completed by a maximum", complete_by_max},
                                           {"is completed by a minimum", complete_by_min},
                                           {"is completed by a product", complete_by_prod},
                                           {"is summed over its replicas", add_partial}};

// Faults of the plan.
// -----------------------------------------------------------------------------------------------------------------

Mutant operand_mutant(const std::string& op, size_t operand, const ShardingFault& fault) {
  return {fmt::format("an operand {}", fault.text),
          fmt::format("{}: operand {} {}", op, operand, fault.text),
          op,
          {.plan = [operand, make = fault.make](const ShardingCase&, Plan& plan) {
            return operand < plan.operands[0].size() && make(plan.operands[0][operand], plan.meshes[0]);
          }}};
}

// The operand is taken as it was produced: nothing is moved, or nothing completed.
Mutant redistribution_mutant(const std::string& op, size_t operand, bool only_partial) {
  const char* text = only_partial ? "completed" : "redistributed";
  return {fmt::format("an operand is not {}", text),
          fmt::format("{}: operand {} is not {}", op, operand, text),
          op,
          {.plan = [operand, only_partial](const ShardingCase& c, Plan& plan) {
            const auto& inputs = c.example->graph.node(0).inputs;
            if (operand >= inputs.size()) return false;
            const auto& produced = plan.values[static_cast<size_t>(inputs[operand])];
            auto& wanted = plan.operands[0][operand];
            if ((only_partial ? wanted.partial == produced.partial : wanted.dims == produced.dims)) return false;
            if (only_partial) {
              wanted.partial = produced.partial;
              return !std::any_of(produced.partial.begin(), produced.partial.end(),
                                  [&](const Partial& p) { return wanted.splits(p.axis); });
            }
            wanted.dims = produced.dims;
            return true;
          }}};
}

Mutant result_mutant(const std::string& op, size_t result, const ShardingFault& fault) {
  return {fmt::format("a result {}", fault.text),
          fmt::format("{}: result {} {}", op, result, fault.text),
          op,
          {.plan = [result, make = fault.make](const ShardingCase& c, Plan& plan) {
            const auto& outputs = c.example->graph.node(0).outputs;
            return result < outputs.size() && make(plan.values[static_cast<size_t>(outputs[result])], plan.meshes[0]);
          }}};
}

// Of the floating values that the operator's gradient computes, the last of which something can be changed.
Mutant gradient_mutant(const std::string& op, const ShardingFault& fault) {
  return {fmt::format("a value of a gradient {}", fault.text),
          fmt::format("{}: a value of its gradient {}", op, fault.text),
          op,
          {.plan = [make = fault.make](const ShardingCase& c, Plan& plan) {
            const Graph& graph = c.example->graph;
            for (NodeId n = graph.num_nodes() - 1; n > 0; --n) {
              if (graph.node(n).forward != 0) continue;
              for (const ValueId v : graph.node(n).outputs) {
                if (is_floating(graph.type(v).dtype) && make(plan.values[static_cast<size_t>(v)], plan.meshes[0]))
                  return true;
              }
            }
            return false;
          }}};
}

// Faults of localize: an attribute that it makes the rank's own stays global, or is that of the mesh's first rank.
// -----------------------------------------------------------------------------------------------------------------

// The node of the local graph that does what node 0 of the logical one does.
Node* find_localized(Graph& local, const std::string& op) {
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    if (local.node(n).op == op) return &local.mutable_node(n);
  }
  return nullptr;
}

bool set_if_other(Node& node, const std::string& name, const AttributeValue* value) {
  if (value == nullptr || !node.attributes.has(name) || *node.attributes.find(name) == *value) return false;
  node.attributes.set(name, AttributeValue(*value));
  return true;
}

Mutant global_attribute_mutant(const std::string& op, const std::string& name) {
  return {"an attribute is that of the whole",
          fmt::format("{}: attribute {} is that of the whole", op, name),
          op,
          {.local = [op, name](const ShardingCase& c, const Plan&, RankGraph& local) {
            Node* node = find_localized(local.graph, op);
            return node != nullptr && set_if_other(*node, name, c.example->graph.node(0).attributes.find(name));
          }}};
}

Mutant other_ranks_attribute_mutant(const std::string& op, const std::string& name) {
  const auto first = std::make_shared<std::optional<AttributeValue>>();
  return {"an attribute is that of the first rank",
          fmt::format("{}: attribute {} is that of the first rank", op, name),
          op,
          {.local = [op, name, first](const ShardingCase&, const Plan& plan, RankGraph& local) {
            Node* node = find_localized(local.graph, op);
            if (local.rank == plan.meshes[0].ranks()[0]) {
              const auto* value = node == nullptr ? nullptr : node->attributes.find(name);
              *first = value == nullptr ? std::nullopt : std::optional<AttributeValue>(*value);
              return false;
            }
            return node != nullptr && first->has_value() && set_if_other(*node, name, &**first);
          }}};
}

// Faults of partition: in the collectives and slices of a local graph.
// -----------------------------------------------------------------------------------------------------------------

struct NodeFault {
  std::string text;
  std::function<bool(const Plan&, RankGraph&, NodeId)> make;
};

// The collective is done by each rank alone.
bool isolate(RankGraph& local, NodeId n) {
  auto& attributes = local.graph.mutable_node(n).attributes;
  attributes.set("ranks", Ints{local.rank});
  attributes.set("rank_in_group", int64_t{0});
  return true;
}

bool use_other_group(const Plan& plan, RankGraph& local, NodeId n) {
  const int rank = local.rank;
  auto& attributes = local.graph.mutable_node(n).attributes;
  for (int axis = 0; axis < plan.meshes[0].num_axes(); ++axis) {
    const auto group = plan.meshes[0].group(rank, {axis});
    const Ints ranks(group.begin(), group.end());
    if (ranks.size() != attributes.get_ints("ranks").size() || ranks == attributes.get_ints("ranks")) continue;
    attributes.set("ranks", ranks);
    attributes.set("group", plan.meshes[0].axis(axis).name);
    attributes.set("rank_in_group", int64_t{std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()});
    return true;
  }
  return false;
}

bool reverse_group(RankGraph& local, NodeId n, bool sizes_too) {
  auto& attributes = local.graph.mutable_node(n).attributes;
  Ints ranks = attributes.get_ints("ranks");
  std::reverse(ranks.begin(), ranks.end());
  attributes.set("ranks", ranks);
  attributes.set("rank_in_group", static_cast<int64_t>(ranks.size()) - 1 - attributes.get_int("rank_in_group"));
  if (sizes_too && attributes.has("sizes")) {
    Ints sizes = attributes.get_ints("sizes");
    std::reverse(sizes.begin(), sizes.end());
    attributes.set("sizes", sizes);
  }
  return true;
}

bool rotate_sizes(RankGraph& local, NodeId n) {
  auto& attributes = local.graph.mutable_node(n).attributes;
  if (!attributes.has("sizes")) return false;
  Ints sizes = attributes.get_ints("sizes");
  const Ints before = sizes;
  std::rotate(sizes.begin(), sizes.begin() + 1, sizes.end());
  attributes.set("sizes", sizes);
  return sizes != before;
}

bool reduce_by(RankGraph& local, NodeId n, const std::string& from, const std::string& to) {
  auto& attributes = local.graph.mutable_node(n).attributes;
  if (attributes.get_string("reduction") != from) return false;
  attributes.set("reduction", to);
  return true;
}

// The rank takes the slice that begins `by` elements elsewhere, or at the beginning.
bool shift_slice(RankGraph& local, NodeId n, int64_t by, bool to_begin) {
  const Shape& whole = local.graph.type(local.graph.node(n).inputs[0]).shape;
  auto& attributes = local.graph.mutable_node(n).attributes;
  Ints begin = attributes.get_ints("begin");
  Ints end = attributes.get_ints("end");
  for (int dim = 0; dim < whole.ndim(); ++dim) {
    const auto at = static_cast<size_t>(dim);
    const int64_t shift = to_begin ? -begin[at] : by;
    if (shift == 0 || begin[at] + shift < 0 || end[at] + shift > whole[dim] || begin[at] == end[at]) continue;
    begin[at] += shift;
    end[at] += shift;
    attributes.set("begin", begin);
    attributes.set("end", end);
    return true;
  }
  return false;
}

// The graph with another one written for the node: `write` adds it to the copy, given its operands there.
using Writer = std::function<std::vector<ir::Value>(Graph& copy, const std::vector<ir::Value>& inputs)>;
void replace_node(RankGraph& rank_graph, NodeId replaced, const Writer& write) {
  const Graph& local = rank_graph.graph;
  Graph copy(local.name());
  std::vector<ir::Value> values(static_cast<size_t>(local.num_values()));
  for (const auto& input : local.inputs()) {
    values[static_cast<size_t>(input.value)] = copy.add_input(input.kind, input.name, local.type(input.value));
  }
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    const Node& node = local.node(n);
    std::vector<ir::Value> inputs;
    std::vector<Type> types;
    for (const ValueId v : node.inputs) inputs.push_back(values[static_cast<size_t>(v)]);
    for (const ValueId v : node.outputs) types.push_back(local.type(v));
    const auto results = n == replaced ? write(copy, inputs) : copy.add_node(node.op, inputs, node.attributes, types);
    for (size_t i = 0; i < results.size(); ++i) values[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  for (const auto& output : local.outputs()) copy.add_output(output.name, values[static_cast<size_t>(output.value)]);
  const NodeId added = copy.num_nodes() - local.num_nodes();
  for (auto& step : rank_graph.steps) {
    if (step.begin > replaced) step.begin += added;
    if (step.end > replaced) step.end += added;
    for (ValueId& v : step.inputs) v = values[static_cast<size_t>(v)].id();
    for (ValueId& v : step.outputs) v = values[static_cast<size_t>(v)].id();
  }
  rank_graph.graph = std::move(copy);
}

// The node is done twice, the second time on its first result.
bool repeat(RankGraph& local, NodeId repeated) {
  const Node node = local.graph.node(repeated);
  const std::vector<Type> types = {local.graph.type(node.outputs[0])};
  replace_node(local, repeated, [&](Graph& copy, const std::vector<ir::Value>& inputs) {
    return copy.add_node(node.op, copy.add_node(node.op, inputs, node.attributes, types), node.attributes, types);
  });
  return true;
}

// The rank's part of a sum is rounded to a half type before it is added up.
bool round_operand(RankGraph& local, NodeId rounded) {
  const Node node = local.graph.node(rounded);
  const Type type = local.graph.type(node.inputs[0]);
  if (type.dtype != DType::kF32) return false;
  const std::vector<Type> types = {local.graph.type(node.outputs[0])};
  replace_node(local, rounded, [&](Graph& copy, const std::vector<ir::Value>& inputs) {
    const ir::Value part = ops::apply1("cast", {inputs[0]}, {{"dtype", DType::kBF16}});
    return copy.add_node(node.op, std::vector<ir::Value>{ops::apply1("cast", {part}, {{"dtype", type.dtype}})},
                         node.attributes, types);
  });
  return true;
}

bool renumber(const Plan& plan, RankGraph& local, NodeId n, const char* name) {
  auto& attributes = local.graph.mutable_node(n).attributes;
  if (local.rank != plan.ranks()[0] || !attributes.has(name)) return false;
  attributes.set(name, attributes.get_int(name) + 1);
  return true;
}

enum class Which { kFirst, kLast, kAll };

// The fault made at nodes of one operator, outside of cases of that operator itself.
Mutant node_mutant(const std::string& op, Which which, const NodeFault& fault) {
  const char* place = which == Which::kFirst ? "the first" : which == Which::kLast ? "the last" : "every";
  return {fmt::format("{} {}", op, fault.text),
          fmt::format("partition: {} {} {}", place, op, fault.text),
          "",
          {.local =
               [op, which, make = fault.make](const ShardingCase& c, const Plan& plan, RankGraph& local) {
                 if (c.example->graph.node(0).op == op) return false;
                 std::vector<NodeId> nodes;
                 for (NodeId n = 0; n < local.graph.num_nodes(); ++n) {
                   if (local.graph.node(n).op == op) nodes.push_back(n);
                 }
                 if (nodes.empty()) return false;
                 if (which == Which::kFirst) nodes.resize(1);
                 if (which == Which::kLast) nodes.erase(nodes.begin(), nodes.end() - 1);
                 bool changed = false;
                 // From the end: repeating a node moves those behind it.
                 for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) changed = make(plan, local, *n) || changed;
                 return changed;
               }},
          op};
}

std::vector<NodeFault> faults_of_slices() {
  return {{"begins one element later", [](auto&, RankGraph& g, NodeId n) { return shift_slice(g, n, 1, false); }},
          {"begins one element earlier", [](auto&, RankGraph& g, NodeId n) { return shift_slice(g, n, -1, false); }},
          {"is the first rank's", [](auto&, RankGraph& g, NodeId n) { return shift_slice(g, n, 0, true); }}};
}

// Whether partition may make nodes of it; the others stand where a network's author wrote them.
bool is_made_by_partition(const ops::CollectiveDef& collective) {
  return collective.has_buckets || collective.names_boxes;
}

std::vector<NodeFault> faults_of(const ops::CollectiveDef& collective) {
  std::vector<NodeFault> faults;
  const auto add = [&](const std::string& text, auto make) { faults.push_back({text, make}); };
  const auto is_first = [](const Plan& plan, const RankGraph& g) { return g.rank == plan.ranks()[0]; };
  add("is left out", [](auto&, RankGraph& g, NodeId n) { return isolate(g, n); });
  add("is left out by one rank",
      [is_first](const Plan& plan, RankGraph& g, NodeId n) { return is_first(plan, g) && isolate(g, n); });
  add("is done in another group", [](const Plan& plan, RankGraph& g, NodeId n) { return use_other_group(plan, g, n); });
  add("has another order on one rank",
      [](const Plan& plan, RankGraph& g, NodeId n) { return renumber(plan, g, n, "order"); });
  if (collective.reduces) {
    add("adds what has been rounded", [](auto&, RankGraph& g, NodeId n) { return round_operand(g, n); });
    const std::vector<std::string> kinds = {"sum", "max", "min", "prod"};
    for (const auto& from : kinds) {
      for (const auto& to : kinds) {
        if (from == to) continue;
        add(fmt::format("is a {} where it should be a {}", to, from),
            [from, to](auto&, RankGraph& g, NodeId n) { return reduce_by(g, n, from, to); });
      }
    }
  }
  if (collective.reduces && collective.gives_one) {
    add("is done twice", [](auto&, RankGraph& g, NodeId n) { return repeat(g, n); });
    add("has another bucket on one rank",
        [](const Plan& plan, RankGraph& g, NodeId n) { return renumber(plan, g, n, "bucket"); });
    return faults;
  }
  add("has its group in reverse", [](auto&, RankGraph& g, NodeId n) { return reverse_group(g, n, false); });
  add("has its group and sizes in reverse", [](auto&, RankGraph& g, NodeId n) { return reverse_group(g, n, true); });
  if (!collective.names_boxes) {
    add("has its sizes rotated", [](auto&, RankGraph& g, NodeId n) { return rotate_sizes(g, n); });
  }
  return faults;
}

}  // namespace

std::vector<Mutant> all_mutants() {
  std::vector<Mutant> mutants;
  for (const auto& [op, def] : ops::OpRegistry::instance().all()) {
    if (def.collective) continue;
    size_t num_operands = 0;
    for (const auto& example : def.examples) num_operands = std::max(num_operands, example.inputs.size());
    for (size_t operand = 0; operand < num_operands; ++operand) {
      for (const auto& fault : kOperandFaults) mutants.push_back(operand_mutant(op, operand, fault));
      mutants.push_back(redistribution_mutant(op, operand, false));
      mutants.push_back(redistribution_mutant(op, operand, true));
    }
    for (size_t result = 0; result < def.outputs.size(); ++result) {
      for (const auto& fault : kResultFaults) mutants.push_back(result_mutant(op, result, fault));
    }
    if (def.gradient) {
      for (const auto& fault : kResultFaults) mutants.push_back(gradient_mutant(op, fault));
    }
    for (const auto& attribute : def.attributes) {
      mutants.push_back(global_attribute_mutant(op, attribute.name));
      mutants.push_back(other_ranks_attribute_mutant(op, attribute.name));
    }
  }
  const auto add_node_mutants = [&](const std::string& op, const std::vector<NodeFault>& faults) {
    for (const auto& fault : faults) {
      for (const auto which : {Which::kFirst, Which::kLast, Which::kAll}) {
        mutants.push_back(node_mutant(op, which, fault));
      }
    }
  };
  for (const auto& [op, def] : ops::OpRegistry::instance().all()) {
    if (def.collective != nullptr && is_made_by_partition(*def.collective)) {
      add_node_mutants(op, faults_of(*def.collective));
    }
  }
  add_node_mutants("strided_slice", faults_of_slices());
  return mutants;
}

std::string why_equivalent(const std::string& mutant) {
  const auto begins = [&](const std::string& text) { return mutant.starts_with(text); };
  const auto says = [&](const char* text) { return mutant.find(text) != std::string::npos; };
  const bool is_other_split = says("less split than") || says("along another dim") || says("the other way round") ||
                              says("by another axis of equal size");
  const auto* def = ops::OpRegistry::instance().find(mutant.substr(0, mutant.find(": ")));
  if (def != nullptr && def->inputs.empty() && says("result 0") && is_other_split) {
    return "without an operand that is split, a rank makes whichever slice the plan asks for";
  }
  if (begins("reshape: ") && is_other_split) {
    return "ranks exchange what the plan says they hold for what it says they need, however both are split";
  }
  if ((begins("ones_like: ") || begins("zeros_like: ")) && says("is not completed")) {
    return "the operand's type is read, not its elements";
  }
  if (begins("all_finite: operand 1 is not completed")) return "the operand says how the first is split, no more";
  return "";
}

}  // namespace tessera::laws
