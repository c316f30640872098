#include "tessera/ir/graph.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::ir {

const Type& Value::type() const {
  check(graph_ != nullptr, "a null value has no type");
  return graph_->type(id_);
}

const char* to_string(InputKind kind) {
  switch (kind) {
    case InputKind::kParameter: return "param";
    case InputKind::kState: return "state";
    case InputKind::kInput: return "input";
  }
  return "?";
}

Value Graph::add_input(InputKind kind, const std::string& name, const Type& type) {
  if (const Input* existing = find_input(name)) {
    if (existing->kind != kind || !(this->type(existing->value) == type)) {
      throw InvalidArgument("{} \"{}\" {} is already {} {} in graph {}", to_string(kind), name, type,
                            to_string(existing->kind), this->type(existing->value), name_);
    }
    return value(existing->value);
  }
  const auto id = static_cast<ValueId>(values_.size());
  values_.push_back({type, kNone, static_cast<int>(inputs_.size())});
  input_numbers_.emplace(name, inputs_.size());
  inputs_.push_back({kind, name, id});
  return value(id);
}

std::vector<Value> Graph::add_node(std::string op, std::span<const Value> inputs, Attributes attributes,
                                   std::span<const Type> output_types) {
  const auto node_id = static_cast<NodeId>(nodes_.size());
  Node node{std::move(op), std::move(attributes), {}, {}, origin_.source, origin_.forward, {}};
  if (node.forward == kNone) {
    node.recompute = origin_.recompute;
    node.stage = origin_.stage;
  }
  for (const Value& input : inputs) {
    check(input && &input.graph() == this, "a node's inputs must be values of its graph");
    node.inputs.push_back(input.id());
  }
  std::vector<Value> results;
  for (const Type& type : output_types) {
    const auto id = static_cast<ValueId>(values_.size());
    values_.push_back({type, node_id, static_cast<int>(node.outputs.size())});
    node.outputs.push_back(id);
    results.push_back(value(id));
  }
  nodes_.push_back(std::move(node));
  return results;
}

void Graph::add_output(const std::string& name, Value value) {
  check(value && &value.graph() == this, "a graph's outputs must be its values");
  if (find_output(name) != nullptr) throw InvalidArgument("graph {} already has an output \"{}\"", name_, name);
  output_numbers_.emplace(name, outputs_.size());
  outputs_.push_back({name, value.id()});
}

void Graph::clear_outputs() {
  outputs_.clear();
  output_numbers_.clear();
}

std::optional<Value> Graph::find_binding(const std::string& name) const {
  auto* self = const_cast<Graph*>(this);
  if (const auto it = assignments_.find(name); it != assignments_.end()) return self->value(it->second);
  if (const Input* input = find_input(name)) return self->value(input->value);
  return std::nullopt;
}

void Graph::assign(const std::string& name, Value value) {
  const Input* input = find_input(name);
  if (input == nullptr) throw InvalidArgument("cannot assign to \"{}\": graph {} has no such input", name, name_);
  if (!(type(input->value) == value.type())) {
    throw InvalidArgument("cannot assign {} to \"{}\", which is {}", value.type(), name, type(input->value));
  }
  assignments_[name] = value.id();
}

void Graph::finish_assignments() {
  for (const auto& input : inputs_) {
    if (const auto it = assignments_.find(input.name); it != assignments_.end()) {
      add_output(input.name, value(it->second));
    }
  }
  assignments_.clear();
}

const Input* Graph::find_input(std::string_view name) const {
  const auto it = input_numbers_.find(name);
  return it == input_numbers_.end() ? nullptr : &inputs_[it->second];
}

const Output* Graph::find_output(std::string_view name) const {
  const auto it = output_numbers_.find(name);
  return it == output_numbers_.end() ? nullptr : &outputs_[it->second];
}

std::string Graph::value_name(ValueId id) const {
  const ValueInfo& value = info(id);
  if (value.node == kNone) return inputs_[static_cast<size_t>(value.index)].name;
  // Inputs may be added between nodes; their ids are not counted.
  int number = 0;
  for (NodeId n = 0; n < value.node; ++n) number += static_cast<int>(node(n).outputs.size());
  return fmt::format("%{}", number + value.index + 1);
}

std::string Graph::node_name(NodeId id) const {
  const Node& n = node(id);
  if (n.source.empty()) return n.op;
  return fmt::format("{} \"{}\"", n.op, n.source);
}

RecomputeScope::RecomputeScope(Graph& graph, bool repeats_collectives, bool gathers_parameters)
    : graph_(graph), previous_(graph.origin()) {
  int last = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) last = std::max(last, graph.node(n).recompute.block);
  auto origin = previous_;
  origin.recompute = {last + 1, repeats_collectives, gathers_parameters};
  graph.set_origin(std::move(origin));
}

}  // namespace tessera::ir
