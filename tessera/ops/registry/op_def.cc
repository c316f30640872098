#include "tessera/ops/registry/op_def.h"

#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/one_registry.h"

namespace tessera::ops {
namespace {

struct AllOperators {
  AllOperators() {
    require_one_registry();
    add_all_families(registry);
  }
  std::mutex mutex;
  OpRegistry registry;
  bool is_closed = false;  // somebody reads it
};

AllOperators& all_operators() {
  static AllOperators all;
  return all;
}

bool is_word(const std::string& name) {
  constexpr auto kCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !name.empty() && name.find_first_not_of(kCharacters) == std::string::npos;
}

}  // namespace

AttributeDef of_run(AttributeDef attribute) {
  attribute.is_of_network = false;
  return attribute;
}

Value GradientContext::cotangent(int i) const {
  const auto at = static_cast<size_t>(i);
  if (cotangents[at]) return cotangents[at];
  return apply1("zeros_like", {outputs[at]});
}

const OpRegistry& OpRegistry::instance() {
  // It is closed once, so that those who read it afterwards need no lock.
  static const OpRegistry& closed = []() -> const OpRegistry& {
    AllOperators& all = all_operators();
    const std::lock_guard lock(all.mutex);
    all.is_closed = true;
    return all.registry;
  }();
  return closed;
}

void add_operator(OpDef def, KernelFactory kernel) {
  const auto name = def.name;
  if (!is_word(name)) {
    throw InvalidArgument("operator \"{}\": its name must have letters, digits and underscores only", name);
  }
  if (!def.infer) throw InvalidArgument("operator {}: infer must be given, which says the types of its results", name);
  if (!kernel) throw InvalidArgument("operator {}: a kernel must be given, which computes it on the host", name);
  if (def.update || def.collective != nullptr) {
    throw InvalidArgument(
        "operator {}: a program's own operator neither updates parameters nor communicates: write the optimizer of "
        "operators that there are, and call the collectives of ops/functions/collective_functions.h",
        name);
  }
  AllOperators& all = all_operators();
  const std::lock_guard lock(all.mutex);
  if (all.is_closed) {
    throw InvalidArgument(
        "operator {} is added when operators have been used already: add it at the beginning of main, before "
        "cluster::run",
        name);
  }
  all.registry.add(std::move(def));
  all.registry.own_kernels_.add(name, std::move(kernel));
}

const OpDef* OpRegistry::find(const std::string& name) const {
  const auto it = defs_.find(name);
  return it == defs_.end() ? nullptr : &it->second;
}

const OpDef& OpRegistry::get(const std::string& name) const {
  if (const OpDef* def = find(name)) return *def;
  std::vector<std::string> names;
  for (const auto& [known, def] : defs_) names.push_back(known);
  const auto near = closest(name, names);
  throw InvalidArgument("unknown operator \"{}\"{}", name, near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

void OpRegistry::add(OpDef def) {
  check(static_cast<bool>(def.infer), "an operator needs shape inference");
  const auto name = def.name;
  if (!defs_.emplace(name, std::move(def)).second) throw InvalidArgument("operator {} is defined twice", name);
}

Value shard(Value value, const mesh::Strategy& strategy, mesh::StrategyGrid grid) {
  ir::Graph& graph = value.graph();
  const ir::NodeId node = graph.info(value.id()).node;
  if (node == ir::kNone) {
    throw InvalidArgument("shard: \"{}\" is an input of the graph; a strategy is given to the operator that reads it",
                          graph.value_name(value.id()));
  }
  graph.mutable_node(node).strategy = strategy;
  graph.mutable_node(node).grid = std::move(grid);
  return value;
}

Value lay_out(Value value, const std::vector<int64_t>& counts, mesh::StrategyGrid grid) {
  return shard(apply1("cast", {value}, {{"dtype", value.dtype()}}), {counts}, std::move(grid));
}

Attributes complete_attributes(const OpDef& def, Attributes attributes) {
  for (const auto& [name, value] : attributes) {
    bool known = false;
    for (const auto& known_attribute : def.attributes) known = known || known_attribute.name == name;
    if (!known) {
      std::vector<std::string> names;
      for (const auto& a : def.attributes) names.push_back(a.name);
      throw InvalidArgument("{}: no attribute \"{}\"; it has: {}", def.name, name, fmt::join(names, ", "));
    }
  }
  for (const auto& known : def.attributes) {
    if (attributes.has(known.name) || known.may_be_absent) continue;
    if (!known.default_value) throw InvalidArgument("{}: attribute \"{}\" must be given", def.name, known.name);
    attributes.set(known.name, *known.default_value);
  }
  return attributes;
}

std::vector<Value> apply(ir::Graph& graph, const std::string& op, std::span<const Value> inputs,
                         Attributes attributes) {
  const OpDef& def = OpRegistry::instance().get(op);
  const auto where = [&] {
    return graph.origin().source.empty() ? op : fmt::format("{} \"{}\"", op, graph.origin().source);
  };
  const size_t declared = def.inputs.size();
  if (def.is_variadic() ? inputs.size() + 1 < declared : inputs.size() != declared) {
    throw InvalidArgument("{}: takes {}{} inputs ({}), got {}", where(), def.is_variadic() ? "at least " : "",
                          def.is_variadic() ? declared - 1 : declared, fmt::join(def.inputs, ", "), inputs.size());
  }
  std::vector<Type> types;
  for (const Value& input : inputs) {
    if (!input) throw InvalidArgument("{}: input {} is a null value", where(), types.size());
    if (!graph.takes(input)) graph.refuse(input, fmt::format("{}: input {}", where(), types.size()));
    types.push_back(input.type());
  }
  const auto complete = complete_attributes(def, std::move(attributes));
  std::vector<Type> results;
  try {
    results = def.infer(complete, types);
  } catch (const InvalidArgument& error) {
    std::string operands;
    for (size_t i = 0; i < types.size(); ++i) {
      const auto name = i < declared && !def.inputs[i].ends_with("...") ? def.inputs[i] : fmt::format("#{}", i);
      operands += fmt::format("{}{} {}", i > 0 ? ", " : "", name, types[i]);
    }
    throw InvalidArgument("{}: {}{}{}", where(), error.what(), operands.empty() ? "" : ": ", operands);
  }
  return graph.add_node(op, inputs, complete, results);
}

std::vector<Value> apply(const std::string& op, std::initializer_list<Value> inputs, Attributes attributes) {
  check(inputs.size() > 0 && *inputs.begin(), "an operator without inputs needs its graph");
  // The one that is being traced, where some of them come from a trace that has ended.
  const Value* traced = inputs.begin();
  for (const Value& input : inputs) {
    if (traced->graph().is_closed() && input) traced = &input;
  }
  return apply(traced->graph(), op, std::span<const Value>(inputs.begin(), inputs.size()), std::move(attributes));
}

Value apply1(const std::string& op, std::initializer_list<Value> inputs, Attributes attributes) {
  return apply(op, inputs, std::move(attributes)).at(0);
}

IndexRule rule_of(const OpDef& def, const Attributes& attributes, std::span<const Type> inputs,
                  std::span<const Type> outputs) {
  if (def.rule) return def.rule(attributes, inputs, outputs);
  std::vector<Shape> in;
  std::vector<Shape> out;
  for (const auto& type : inputs) in.push_back(type.shape);
  for (const auto& type : outputs) out.push_back(type.shape);
  return replicated_rule(in, out);
}

IndexRule rule_of(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  for (const auto v : node.inputs) inputs.push_back(graph.type(v));
  for (const auto v : node.outputs) outputs.push_back(graph.type(v));
  IndexRule rule = rule_of(OpRegistry::instance().get(node.op), node.attributes, inputs, outputs);
  check_equal(rule.inputs.size(), inputs.size(), "operands of an index rule");
  check_equal(rule.outputs.size(), outputs.size(), "results of an index rule");
  return rule;
}

Cost cost_of(const OpDef& def, const Attributes& attributes, std::span<const Type> inputs,
             std::span<const Type> outputs) {
  Cost cost;
  if (def.flops) cost.flops = def.flops(attributes, inputs, outputs);
  for (const auto& type : inputs) cost.bytes += static_cast<double>(type.size_bytes());
  for (const auto& type : outputs) cost.bytes += static_cast<double>(type.size_bytes());
  return cost;
}

}  // namespace tessera::ops
