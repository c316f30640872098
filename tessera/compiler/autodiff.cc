#include "tessera/compiler/autodiff.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;

// The ends of a transfer are two ends of one value: whether a cotangent flows back depends on what both ranks compute,
// which neither knows. Both ends therefore always do their part.
bool is_end_of_transfer(const Graph& graph, const Node& node) {
  const auto* collective = ops::collective_of(node);
  return collective != nullptr && collective->is_transfer() && is_floating(graph.type(node.outputs[0]).dtype);
}

// Which values depend on one of `wrt` through differentiable types.
std::vector<bool> depends_on(const Graph& graph, std::span<const Value> wrt) {
  std::vector<bool> depends(static_cast<size_t>(graph.num_values()));
  for (const Value& v : wrt) depends[static_cast<size_t>(v.id())] = true;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    bool any = is_end_of_transfer(graph, node);
    for (const auto input : node.inputs) any = any || depends[static_cast<size_t>(input)];
    if (!any) continue;
    for (const auto output : node.outputs) {
      if (is_floating(graph.type(output).dtype)) depends[static_cast<size_t>(output)] = true;
    }
  }
  return depends;
}

}  // namespace

std::vector<Value> gradients(Value value, std::span<const Value> wrt, Value seed) {
  Graph& graph = value.graph();
  if (!is_floating(value.dtype())) {
    throw InvalidArgument("gradients: the value must be floating, got {}", value.type());
  }
  const auto depends = depends_on(graph, wrt);
  std::vector<Value> cotangents(static_cast<size_t>(graph.num_values()));
  const auto accumulate = [&](ir::ValueId target, Value cotangent) {
    check_equal(cotangent.type(), graph.type(target), "type of a cotangent");
    auto& sum = cotangents[static_cast<size_t>(target)];
    sum = sum ? ops::apply1("add", {sum, cotangent}) : cotangent;
  };
  const NodeId last = graph.num_nodes() - 1;  // a transfer may stand after the value
  if (!seed) {
    const ir::SourceScope scope(graph, "loss");
    seed = ops::apply(graph, "fill", {},
                      {{"shape", value.shape().to_vector()}, {"value", 1.0}, {"dtype", value.dtype()}})[0];
  }
  accumulate(value.id(), seed);

  for (NodeId n = last; n >= 0; --n) {
    const Node node = graph.node(n);  // a copy: adding nodes moves the originals
    bool reached = false;
    for (const auto output : node.outputs) reached = reached || cotangents[static_cast<size_t>(output)];
    bool wanted = is_end_of_transfer(graph, node);
    reached = reached || wanted;
    for (const auto input : node.inputs) wanted = wanted || depends[static_cast<size_t>(input)];
    if (!reached || !wanted) continue;
    const ops::OpDef& def = ops::OpRegistry::instance().get(node.op);
    if (!def.gradient) continue;
    const ir::SourceScope scope(graph, node.source, n);
    ops::GradientContext context{graph, node.attributes, {}, {}, {}};
    for (const auto input : node.inputs) context.inputs.push_back(graph.value(input));
    for (const auto output : node.outputs) {
      context.outputs.push_back(graph.value(output));
      context.cotangents.push_back(cotangents[static_cast<size_t>(output)]);
    }
    const auto results = def.gradient(context);
    check_equal(results.size(), node.inputs.size(), "number of cotangents");
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] && depends[static_cast<size_t>(node.inputs[i])]) accumulate(node.inputs[i], results[i]);
    }
  }
  std::vector<Value> result;
  for (const Value& v : wrt) {
    const Value found = cotangents[static_cast<size_t>(v.id())];
    result.push_back(found ? found : ops::apply1("zeros_like", {v}));
  }
  return result;
}

}  // namespace tessera::compiler
