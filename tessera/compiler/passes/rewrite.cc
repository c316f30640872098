#include "tessera/compiler/passes/rewrite.h"

#include "tessera/base/error.h"

namespace tessera::compiler {

using ir::NodeId;
using ir::Value;
using ir::ValueId;

Rewriter::Rewriter(const ir::Graph& from)
    : from_(from),
      to_(from.name()),
      values_(static_cast<size_t>(from.num_values())),
      nodes_(static_cast<size_t>(from.num_nodes()), ir::kNone) {
  for (const auto& input : from.inputs()) {
    set(input.value, to_.add_input(input.kind, input.name, from.type(input.value)));
  }
}

Value Rewriter::at(ValueId old) const {
  const Value& value = values_[static_cast<size_t>(old)];
  check(static_cast<bool>(value), "a pass uses a value that it has dropped");
  return value;
}

void Rewriter::set_origin(NodeId node) {
  const ir::Node& old = from_.node(node);
  NodeId forward = old.forward;
  if (forward != ir::kNone) forward = nodes_[static_cast<size_t>(forward)];
  to_.set_origin({old.source, forward, {}, old.stage, old.segment, old.line});
}

void Rewriter::set_origin(std::span<const NodeId> nodes) {
  set_origin(nodes.back());
  auto origin = to_.origin();
  for (size_t i = nodes.size(); i-- > 0 && origin.line.empty();) origin.line = from_.node(nodes[i]).line;
  to_.set_origin(origin);
}

void Rewriter::copy(NodeId node) {
  const ir::Node& old = from_.node(node);
  std::vector<Value> inputs;
  for (const ValueId input : old.inputs) inputs.push_back(at(input));
  std::vector<Type> types;
  for (const ValueId output : old.outputs) types.push_back(from_.type(output));
  set_origin(node);
  const auto results = to_.add_node(old.op, inputs, old.attributes, types);
  nodes_[static_cast<size_t>(node)] = to_.num_nodes() - 1;
  ir::Node& made = to_.mutable_node(to_.num_nodes() - 1);
  copy_marks(old, made);
  for (size_t i = 0; i < results.size(); ++i) set(old.outputs[i], results[i]);
}

void copy_marks(const ir::Node& from, ir::Node& to) {
  to.strategy = from.strategy;
  to.grid = from.grid;
  to.recompute = from.recompute;
  to.stage = from.stage;
  to.segment = from.segment;
  to.again = from.again;
  to.compute_dtype = from.compute_dtype;
}

ir::Graph Rewriter::finish() {
  to_.set_origin({});
  for (ValueId v = 0; v < from_.num_values(); ++v) {
    const Value& value = values_[static_cast<size_t>(v)];
    if (value && from_.info(v).logical.is_known()) to_.set_logical(value.id(), from_.info(v).logical);
  }
  for (const auto& output : from_.outputs()) to_.add_output(output.name, at(output.value));
  return std::move(to_);
}

}  // namespace tessera::compiler
