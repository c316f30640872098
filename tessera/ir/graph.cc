#include "tessera/ir/graph.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::ir {

namespace {

constexpr const char* kKeepStates =
    "values do not outlive the call of the network that makes them: assign what the next one reads to a parameter";

}  // namespace

// The graph of a handle, wherever it moves to. Handles share it, so that they never refer to what is not there.
struct GraphAnchor {
  explicit GraphAnchor(Graph& its_graph) : graph(&its_graph) {}

  Graph* graph;
  Graph remains;  // of a graph that has gone before its handles
};

Graph& Value::graph() const {
  check(anchor_ != nullptr, "a null value has no graph");
  return *anchor_->graph;
}

const Type& Value::type() const {
  check(anchor_ != nullptr, "a null value has no type");
  return anchor_->graph->type(id_);
}

const char* to_string(InputKind kind) {
  switch (kind) {
    case InputKind::kParameter: return "param";
    case InputKind::kState: return "state";
    case InputKind::kInput: return "input";
  }
  return "?";
}

Graph::Graph(Graph&& other) noexcept { take(other); }

Graph& Graph::operator=(const Graph& other) {
  if (this != &other) *this = Graph(other);
  return *this;
}

Graph& Graph::operator=(Graph&& other) noexcept {
  if (this == &other) return *this;
  leave_to_handles();
  take(other);
  return *this;
}

void Graph::take(Graph& other) noexcept {
  data_ = std::move(other.data_);
  is_closed_ = other.is_closed_;
  anchor_ = std::move(other.anchor_);
  if (anchor_) anchor_->graph = this;
}

void Graph::leave_to_handles() noexcept {
  if (anchor_ && anchor_.use_count() > 1) {
    Graph& remains = anchor_->remains;
    remains.data_ = std::move(data_);
    remains.close();
    anchor_->graph = &remains;
  }
  anchor_.reset();
}

Value Graph::value(ValueId id) {
  if (!anchor_) anchor_ = std::make_shared<GraphAnchor>(*this);
  return {anchor_, id};
}

void Graph::check_open(const std::string& who) const {
  if (!is_closed_) return;
  throw InvalidArgument("{}: the trace of graph \"{}\" has ended; {}", who, data_.name, kKeepStates);
}

void Graph::refuse(const Value& value, const std::string& who) const {
  const Graph& from = value.graph();
  const NodeId made_by = from.info(value.id()).node;
  const auto what = fmt::format("{} {}{} of graph \"{}\"", from.value_name(value.id()), value.type(),
                                made_by == kNone ? "" : ", made by " + from.node_name(made_by), from.name());
  if (!from.is_closed()) {
    throw InvalidArgument("{} is {}, another than graph \"{}\", which is to take it", who, what, data_.name);
  }
  throw InvalidArgument("{} is {}, whose trace has ended; {}", who, what, kKeepStates);
}

Value Graph::add_input(InputKind kind, const std::string& name, const Type& type) {
  if (const Input* existing = find_input(name)) {
    if (existing->kind != kind || !(this->type(existing->value) == type)) {
      throw InvalidArgument("{} \"{}\" {} is already {} {} in graph {}", to_string(kind), name, type,
                            to_string(existing->kind), this->type(existing->value), data_.name);
    }
    return value(existing->value);
  }
  check_open(fmt::format("{} \"{}\"", to_string(kind), name));
  const auto id = static_cast<ValueId>(data_.values.size());
  data_.values.push_back({type, kNone, static_cast<int>(data_.inputs.size())});
  data_.input_numbers.emplace(name, data_.inputs.size());
  data_.inputs.push_back({kind, name, id});
  return value(id);
}

std::vector<Value> Graph::add_node(std::string op, std::span<const Value> inputs, Attributes attributes,
                                   std::span<const Type> output_types) {
  const auto node_id = static_cast<NodeId>(data_.nodes.size());
  Node node{std::move(op), std::move(attributes), {}, {}, data_.origin.source, data_.origin.forward, {}};
  node.line = line_of_next_node();
  if (node.forward == kNone) {
    node.recompute = data_.origin.recompute;
    node.stage = data_.origin.stage;
    node.segment = data_.origin.segment;
  }
  check_open(node.op);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!takes(inputs[i])) refuse(inputs[i], fmt::format("{}: input {}", node.op, i));
    node.inputs.push_back(inputs[i].id());
  }
  std::vector<Value> results;
  for (const Type& type : output_types) {
    const auto id = static_cast<ValueId>(data_.values.size());
    data_.values.push_back({type, node_id, static_cast<int>(node.outputs.size())});
    node.outputs.push_back(id);
    results.push_back(value(id));
  }
  data_.nodes.push_back(std::move(node));
  return results;
}

std::string Graph::line_of_next_node() const {
  if (!data_.origin.line.empty()) return data_.origin.line;
  if (data_.origin.forward >= 0 && data_.origin.forward < num_nodes()) return node(data_.origin.forward).line;
  return line_finder_ ? line_finder_() : "";
}

void Graph::add_output(const std::string& name, Value value) {
  if (!takes(value)) refuse(value, fmt::format("output \"{}\"", name));
  if (find_output(name) != nullptr) throw InvalidArgument("graph {} already has an output \"{}\"", data_.name, name);
  data_.output_numbers.emplace(name, data_.outputs.size());
  data_.outputs.push_back({name, value.id()});
}

void Graph::clear_outputs() {
  data_.outputs.clear();
  data_.output_numbers.clear();
}

std::optional<Value> Graph::find_binding(const std::string& name) const {
  auto* self = const_cast<Graph*>(this);
  if (const auto it = data_.assignments.find(name); it != data_.assignments.end()) return self->value(it->second);
  if (const Input* input = find_input(name)) return self->value(input->value);
  return std::nullopt;
}

void Graph::assign(const std::string& name, Value value) {
  const Input* input = find_input(name);
  if (input == nullptr) throw InvalidArgument("cannot assign to \"{}\": graph {} has no such input", name, data_.name);
  if (!takes(value)) refuse(value, fmt::format("what is assigned to \"{}\"", name));
  if (!(type(input->value) == value.type())) {
    throw InvalidArgument("cannot assign {} to \"{}\", which is {}", value.type(), name, type(input->value));
  }
  data_.assignments[name] = value.id();
}

void Graph::rebind(const std::string& name, Value value) {
  assign(name, value);
  if (find_input(name)->value == value.id()) data_.assignments.erase(name);
}

void Graph::finish_assignments() {
  for (const auto& input : data_.inputs) {
    if (const auto it = data_.assignments.find(input.name); it != data_.assignments.end()) {
      add_output(input.name, value(it->second));
    }
  }
  data_.assignments.clear();
}

void Graph::set_logical(ValueId id, const LogicalPlace& place) {
  LogicalPlace& known = data_.values[static_cast<size_t>(id)].logical;
  if (!known.is_known()) known = place;
}

const Input* Graph::find_input(std::string_view name) const {
  const auto it = data_.input_numbers.find(name);
  return it == data_.input_numbers.end() ? nullptr : &data_.inputs[it->second];
}

const Output* Graph::find_output(std::string_view name) const {
  const auto it = data_.output_numbers.find(name);
  return it == data_.output_numbers.end() ? nullptr : &data_.outputs[it->second];
}

std::string Graph::value_name(ValueId id) const {
  const ValueInfo& value = info(id);
  if (value.node == kNone) return data_.inputs[static_cast<size_t>(value.index)].name;
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
