#include "tessera/compiler/passes/fused_program.h"

#include "tessera/base/strings.h"
#include "tessera/tensor/element_op.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

std::optional<std::string> program_op(const Graph& graph, const Node& node) {
  if (const auto op = find_element_op(node.op)) {
    const ElementTypes types = info_of(*op).types;
    const bool computes = types == ElementTypes::kNumeric || types == ElementTypes::kFloating;
    if (computes || types == ElementTypes::kSelect) return node.op;
  }
  if (node.op == "gelu" || node.op == "gelu_grad") {
    return std::string(node.attributes.get_bool("approximate") ? "gelu_tanh" : "gelu_erf") +
           (node.op == "gelu_grad" ? "_grad" : "");
  }
  if (node.op == "cast") {
    const DType to = graph.type(node.outputs[0]).dtype;
    return to == DType::kBF16 ? "round_bf16" : to == DType::kF16 ? "round_f16" : "copy";
  }
  return std::nullopt;
}

std::optional<std::string> literal_of(const Graph& graph, ValueId v) {
  const NodeId n = graph.info(v).node;
  const DType dtype = graph.type(v).dtype;
  if (n == ir::kNone || graph.node(n).op != "fill" || (dtype != DType::kF32 && !is_half(dtype))) return std::nullopt;
  if (graph.type(v).shape.ndim() != 0) return std::nullopt;  // its shape may be what widens the result
  const auto number = static_cast<float>(graph.node(n).attributes.get_double("value"));
  if (dtype == DType::kBF16) return shortest(static_cast<double>(static_cast<float>(BFloat16(number))));
  if (dtype == DType::kF16) return shortest(static_cast<double>(static_cast<float>(Float16(number))));
  return shortest(static_cast<double>(number));
}

}  // namespace tessera::compiler
