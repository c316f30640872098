#include "tessera/ops/functions/custom_gradient.h"

#include "tessera/base/error.h"
#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {
namespace {

// A node's operands: the results, what they were made of, and the parameters and states that `backward` reads.
struct Operands {
  size_t num_outputs;
  size_t num_inputs;
};

Operands operands_of(const Attributes& attributes) {
  return {static_cast<size_t>(attributes.get_int("num_outputs")),
          static_cast<size_t>(attributes.get_int("num_inputs"))};
}

// What an input of `backward` is, given the operands and cotangents of a node; held: parameters and states so far.
Value argument(const ir::Graph& backward, const ir::Input& input, const GradientContext& c, size_t& held) {
  const auto [num_outputs, num_inputs] = operands_of(c.attributes);
  if (input.kind != ir::InputKind::kInput) return c.inputs.at(num_outputs + num_inputs + held++);
  const auto number = [&](std::string_view prefix) { return std::stoul(input.name.substr(prefix.size())); };
  if (input.name.starts_with("$dout")) {
    const size_t i = number("$dout");
    if (c.cotangents.at(i)) return c.cotangents[i];
    const Type& type = backward.type(input.value);
    return apply(c.graph, "fill", {}, {{"shape", type.shape.to_vector()}, {"value", 0.0}, {"dtype", type.dtype}})[0];
  }
  return input.name.starts_with("$out") ? c.inputs.at(number("$out")) : c.inputs.at(num_outputs + number("$x"));
}

// Writes the nodes of `backward` into the graph. Mixed precision may have made operands in other dtypes than the
// function was traced with: it computes in those that it was traced with.
std::vector<Value> inline_backward(const GradientContext& c) {
  const ir::Graph backward = ir::parse(c.attributes.get_string("backward"));
  std::vector<Value> values(static_cast<size_t>(backward.num_values()));
  size_t held = 0;
  for (const auto& input : backward.inputs()) {
    values[static_cast<size_t>(input.value)] =
        cast(argument(backward, input, c, held), backward.type(input.value).dtype);
  }
  for (ir::NodeId n = 0; n < backward.num_nodes(); ++n) {
    const ir::Node& node = backward.node(n);
    std::vector<Value> inputs;
    for (const auto v : node.inputs) inputs.push_back(values[static_cast<size_t>(v)]);
    const auto results = apply(c.graph, node.op, inputs, node.attributes);
    if (!node.strategy.empty() && !results.empty()) shard(results[0], node.strategy, node.grid);
    for (size_t i = 0; i < results.size(); ++i) values[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  const auto [num_outputs, num_inputs] = operands_of(c.attributes);
  std::vector<Value> cotangents(c.inputs.size());
  for (size_t i = 0; i < num_inputs; ++i) {
    const auto* result = backward.find_output(fmt::format("$dx{}", i));
    if (result == nullptr) continue;
    const Value& input = c.inputs[num_outputs + i];
    cotangents[num_outputs + i] = cast(values[static_cast<size_t>(result->value)], input.dtype());
  }
  return cotangents;
}

}  // namespace

std::vector<Value> with_gradient(std::span<const Value> outputs, std::span<const Value> inputs,
                                 const ir::Graph& backward) {
  check(!outputs.empty(), "a gradient is one of some result");
  ir::Graph& graph = outputs[0].graph();
  if (!backward.assignments().empty()) {
    throw InvalidArgument("a gradient of one's own assigns to \"{}\": it can read parameters only",
                          backward.assignments().begin()->first);
  }
  std::vector<Value> operands(outputs.begin(), outputs.end());
  operands.insert(operands.end(), inputs.begin(), inputs.end());
  for (const auto& input : backward.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    const auto bound = graph.find_binding(input.name);
    operands.push_back(bound ? *bound : graph.add_input(input.kind, input.name, backward.type(input.value)));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* result = backward.find_output(fmt::format("$dx{}", i));
    if (result == nullptr || backward.type(result->value) == inputs[i].type()) continue;
    throw InvalidArgument("a gradient of one's own gives {} for input {}, which is {}", backward.type(result->value), i,
                          inputs[i].type());
  }
  return apply(graph, "custom_gradient", operands,
               {{"num_outputs", static_cast<int64_t>(outputs.size())},
                {"num_inputs", static_cast<int64_t>(inputs.size())},
                {"backward", ir::print(backward)}});
}

void add_custom_gradient(OpRegistry& registry) {
  registry.add({.name = "custom_gradient",
                .doc = "The first num_outputs values. Their cotangents go back to the next num_inputs as the graph "
                       "`backward` says, not to what made the values; the rest are the parameters that it reads. "
                       "Simplified away once gradients are there.",
                .inputs = {"values..."},
                .attributes = {{"num_outputs", std::nullopt, "values that are passed on"},
                               {"num_inputs", std::nullopt, "values that they were made of"},
                               {"backward", std::nullopt, "a graph's text, see with_gradient"}},
                .outputs = {"results..."},
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  const auto [num_outputs, num_inputs] = operands_of(attributes);
                  if (num_outputs < 1 || num_outputs + num_inputs > types.size()) {
                    throw InvalidArgument("{} results of {} inputs cannot be among {} values", num_outputs, num_inputs,
                                          types.size());
                  }
                  return {types.begin(), types.begin() + static_cast<std::ptrdiff_t>(num_outputs)};
                },
                .gradient = inline_backward,
                .examples = {{.inputs = {{{DType::kF32, {2, 3}}}, {{DType::kF32, {4}}}, {{DType::kF32, {2}}}},
                              .attributes = {{"num_outputs", int64_t{2}},
                                             {"num_inputs", int64_t{1}},
                                             {"backward", "graph backward\n  return\n"}},
                              .check_gradient = false}}});
}

}  // namespace tessera::ops
