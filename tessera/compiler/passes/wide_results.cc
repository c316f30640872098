// What an operator adds up in f32 and is cast to f32 right away need not be rounded to a half type in between: so the
// gradients of weights reach the optimizer.
#include <algorithm>

#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool widens(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  return node.op == "cast" && node.attributes.get_dtype("dtype") == DType::kF32;
}

bool can_be_wide(const Graph& graph, const Node& node, const ValueUses& uses) {
  const auto& known = ops::OpRegistry::instance().get(node.op).attributes;
  if (std::none_of(known.begin(), known.end(), [](const auto& a) { return a.name == "result_dtype"; })) return false;
  const ValueId result = node.outputs[0];
  const DType dtype = graph.type(result).dtype;
  const auto& users = uses.users[static_cast<size_t>(result)];
  return (dtype == DType::kBF16 || dtype == DType::kF16) && !uses.is_result[static_cast<size_t>(result)] &&
         !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId user) { return widens(graph, user); });
}

}  // namespace

Graph keep_results_wide(const Graph& graph) {
  const ValueUses uses = find_uses(graph);
  Rewriter rewriter(graph);
  std::vector<bool> is_wide(static_cast<size_t>(graph.num_values()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    if (widens(graph, n) && is_wide[static_cast<size_t>(node.inputs[0])]) {
      rewriter.set(node.outputs[0], rewriter.at(node.inputs[0]));
      rewriter.stands_for(n, rewriter.new_node(graph.info(node.inputs[0]).node));
      continue;
    }
    if (!can_be_wide(graph, node, uses)) {
      rewriter.copy(n);
      continue;
    }
    is_wide[static_cast<size_t>(node.outputs[0])] = true;
    std::vector<ir::Value> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(rewriter.at(v));
    Attributes attributes = node.attributes;
    attributes.set("result_dtype", DType::kF32);
    rewriter.set_origin(n);
    rewriter.set(node.outputs[0], ops::apply(rewriter.graph(), node.op, inputs, attributes)[0]);
    rewriter.stands_for(n, rewriter.graph().num_nodes() - 1);
    Node& made = rewriter.graph().mutable_node(rewriter.new_node(n));
    made.strategy = node.strategy;
    made.grid = node.grid;
    made.recompute = node.recompute;
    made.again = node.again;
  }
  return rewriter.finish();
}

}  // namespace tessera::compiler
