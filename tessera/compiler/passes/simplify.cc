#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

// The one number that every element has, if the value comes from a fill.
std::optional<double> uniform_value(const Graph& graph, ValueId v) {
  const NodeId n = graph.info(v).node;
  if (n == ir::kNone || graph.node(n).op != "fill") return std::nullopt;
  const double value = graph.node(n).attributes.get_double("value");
  return graph.type(v).dtype == DType::kF32 ? static_cast<float>(value) : value;
}

std::optional<double> evaluate(const std::string& op, double a, double b) {
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul") return a * b;
  if (op == "div") return a / b;
  return std::nullopt;
}

}  // namespace

Graph remove_dead_code(const Graph& graph) {
  std::vector<bool> wanted(static_cast<size_t>(graph.num_values()));
  std::vector<bool> kept(static_cast<size_t>(graph.num_nodes()));
  for (const auto& output : graph.outputs()) wanted[static_cast<size_t>(output.value)] = true;
  for (NodeId n = graph.num_nodes() - 1; n >= 0; --n) {
    const Node& node = graph.node(n);
    bool keep = ops::is_collective(node);
    for (const ValueId output : node.outputs) keep = keep || wanted[static_cast<size_t>(output)];
    kept[static_cast<size_t>(n)] = keep;
    if (!keep) continue;
    for (const ValueId input : node.inputs) wanted[static_cast<size_t>(input)] = true;
  }
  Rewriter rewriter(graph);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (kept[static_cast<size_t>(n)]) rewriter.copy(n);
  }
  return rewriter.finish();
}

Graph merge_common_subexpressions(const Graph& graph) {
  Rewriter rewriter(graph);
  std::map<std::string, NodeId> seen;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    if (ops::is_collective(node)) {
      rewriter.copy(n);
      continue;
    }
    std::string key =
        node.op + node.attributes.to_string() + mesh::to_string(node.strategy) + mesh::to_string(node.grid);
    // One for each block that is recomputed, else the first would have to be kept for the second; and what is computed
    // again is not to be kept.
    key += fmt::format(" {}{}", node.recompute.block, node.again ? " again" : "");
    // Stages do not wait for each other's constants.
    if (node.stage != ir::kNone) key += fmt::format(" stage {} {}", node.stage, node.segment);
    for (const ValueId input : node.inputs) key += fmt::format(" {}", rewriter.at(input).id());
    const auto [it, is_new] = seen.emplace(key, n);
    if (is_new) {
      rewriter.copy(n);
      continue;
    }
    const Node& first = graph.node(it->second);
    for (size_t i = 0; i < node.outputs.size(); ++i) rewriter.set(node.outputs[i], rewriter.at(first.outputs[i]));
    rewriter.stands_for(n, rewriter.new_node(it->second));
  }
  return rewriter.finish();
}

Graph fold_constants(const Graph& graph) {
  Rewriter rewriter(graph);
  Graph& to = rewriter.graph();
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    const auto keep_input = [&](size_t input) { rewriter.set(node.outputs[0], rewriter.at(node.inputs[input])); };
    const auto input_type = [&](size_t input) { return graph.type(node.inputs[input]); };
    if (node.outputs.empty()) {
      rewriter.copy(n);
      continue;
    }
    const Type& type = graph.type(node.outputs[0]);
    const auto same_as_input = [&](size_t input) { return input_type(input) == type; };
    const auto fill_with = [&](double value) {
      rewriter.set_origin(n);
      rewriter.set(
          node.outputs[0],
          ops::apply(to, "fill", {}, {{"shape", type.shape.to_vector()}, {"value", value}, {"dtype", type.dtype}})[0]);
    };
    if (node.inputs.size() == 2 && is_floating(type.dtype) &&
        (node.op == "add" || node.op == "sub" || node.op == "mul" || node.op == "div")) {
      // Look at the new graph, where earlier folds are visible.
      const auto a = uniform_value(to, rewriter.at(node.inputs[0]).id());
      const auto b = uniform_value(to, rewriter.at(node.inputs[1]).id());
      // Only f64 and f32 are folded: the half types round at each operation.
      const bool wide = type.dtype == DType::kF32 || type.dtype == DType::kF64;
      if (a && b && wide) {
        const double value = *evaluate(node.op, *a, *b);
        fill_with(type.dtype == DType::kF32 ? static_cast<float>(value) : value);
        continue;
      }
      const bool neutral_right = b && ((node.op == "mul" || node.op == "div") ? *b == 1.0 : *b == 0.0);
      if (neutral_right && same_as_input(0)) {
        keep_input(0);
        continue;
      }
      const bool neutral_left = a && ((node.op == "mul" && *a == 1.0) || (node.op == "add" && *a == 0.0));
      if (neutral_left && same_as_input(1)) {
        keep_input(1);
        continue;
      }
    }
    if (node.op == "stop_gradient") {  // the gradients are there by now
      keep_input(0);
      continue;
    }
    if (node.op == "custom_gradient") {  // likewise
      for (size_t i = 0; i < node.outputs.size(); ++i) rewriter.set(node.outputs[i], rewriter.at(node.inputs[i]));
      continue;
    }
    const bool says_where = node.op == "cast" && !node.strategy.empty();  // ops::lay_out()
    if ((node.op == "cast" || node.op == "reshape" || node.op == "broadcast_to") && same_as_input(0) && !says_where) {
      keep_input(0);
      continue;
    }
    // A change of shape back to where it came from.
    if (node.op == "reshape") {
      const NodeId before = to.info(rewriter.at(node.inputs[0]).id()).node;
      if (before != ir::kNone && to.node(before).op == "reshape") {
        const ir::Value first = to.value(to.node(before).inputs[0]);
        if (first.type() == type) {
          rewriter.set(node.outputs[0], first);
          continue;
        }
      }
    }
    if (node.op == "transpose") {
      const auto& perm = node.attributes.get_ints("perm");
      bool identity = true;
      for (size_t i = 0; i < perm.size(); ++i) identity = identity && perm[i] == static_cast<int64_t>(i);
      if (identity) {
        keep_input(0);
        continue;
      }
    }
    if (node.op == "zeros_like" || node.op == "ones_like") {
      fill_with(node.op == "ones_like" ? 1.0 : 0.0);
      continue;
    }
    rewriter.copy(n);
  }
  return rewriter.finish();
}

}  // namespace tessera::compiler
