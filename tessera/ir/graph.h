// Graph: a list of nodes in SSA form: each value is defined once, before its uses. Pure: parameters and states are
// inputs, their new values are outputs. The same form serves all stages: with global shapes (logical) or with one
// rank's (local), where collectives are ordinary nodes.
//
// Not thread-safe. Values and nodes are numbers that stay valid while the graph lives; Value is a handle that carries
// its graph, so that operators can be written as functions of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mesh/strategy.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/type.h"

namespace tessera::ir {

class Graph;
using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

class Value {
 public:
  Value() = default;
  Value(Graph* graph, ValueId id) : graph_(graph), id_(id) {}

  explicit operator bool() const { return graph_ != nullptr; }
  Graph& graph() const { return *graph_; }
  ValueId id() const { return id_; }
  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int ndim() const { return shape().ndim(); }
  bool operator==(const Value&) const = default;

 private:
  Graph* graph_ = nullptr;
  ValueId id_ = kNone;
};

enum class InputKind { kParameter, kState, kInput };
const char* to_string(InputKind kind);  // "param", "state", "input"

struct Input {
  InputKind kind = InputKind::kInput;
  std::string name;
  ValueId value = kNone;
};

// Marks a node in a block of the network whose inner values backward computes once more instead of keeping them.
struct RecomputeMark {
  int block = 0;                    // numbered from 1; 0: in none
  bool repeats_collectives = true;  // those in the block; else their results are kept
  bool gathers_parameters = false;  // those whose rows replicas share, once more; else they are kept whole
  bool operator==(const RecomputeMark&) const = default;
};

struct Node {
  std::string op;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  // Where it comes from: the attribute path of the cell, "loss", "optimizer". Printed by errors and profiles.
  std::string source;
  // The forward node that a gradient node belongs to, or that this one repeats.
  NodeId forward = kNone;
  // How the user wants it split; a hint that holds for every plan. Empty: the plan decides.
  mesh::Strategy strategy = {};
  RecomputeMark recompute = {};
  // Computes for gradients what the node `forward` has computed before.
  bool again = false;
  // The pipeline stage that the user wants it on: a hint, of forward nodes. kNone: that of its neighbours.
  int stage = kNone;
  // The dtype that the user wants it computed in; a hint that the rewrite for mixed precision follows and takes away.
  std::optional<DType> compute_dtype = std::nullopt;
};

struct Output {
  std::string name;  // "loss", or the parameter or state whose new value it is
  ValueId value = kNone;
};
// An output of this name, bool[], says whether a step's updates hold. They are written as select(guard, new, old), of
// which a schedule makes steps that are left out; a loss that is not finite is then no error.
inline constexpr const char* kUpdateGuard = "all_finite";

// What is known of a value: its type and where it is defined.
struct ValueInfo {
  Type type;
  NodeId node = kNone;  // kNone for an input of the graph
  int index = 0;        // which output of the node, or which input of the graph
};

class Graph {
 public:
  explicit Graph(std::string name = "graph") : name_(std::move(name)) {}
  // A copy's values have equal ids; Value handles of the original do not refer to it.
  Graph(const Graph&) = default;
  Graph(Graph&&) = default;
  Graph& operator=(const Graph&) = default;
  Graph& operator=(Graph&&) = default;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // Throws InvalidArgument when the name is taken by an input of another kind or type; returns the existing value when
  // it is there with the same.
  Value add_input(InputKind kind, const std::string& name, const Type& type);
  // Appends a node; its outputs get the types given. Inputs must be values of this graph.
  std::vector<Value> add_node(std::string op, std::span<const Value> inputs, Attributes attributes,
                              std::span<const Type> output_types);
  void add_output(const std::string& name, Value value);

  // The latest value of a parameter or state: what was assigned, else the input.
  std::optional<Value> find_binding(const std::string& name) const;
  // Makes `value` what later reads of `name` see. finish_assignments() turns what was assigned into outputs, in the
  // order of the inputs.
  void assign(const std::string& name, Value value);
  void finish_assignments();
  const std::map<std::string, ValueId>& assignments() const { return assignments_; }

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  void clear_outputs();
  const Input* find_input(std::string_view name) const;
  const Output* find_output(std::string_view name) const;
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  int num_values() const { return static_cast<int>(values_.size()); }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& mutable_node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const ValueInfo& info(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const Type& type(ValueId id) const { return info(id).type; }
  Value value(ValueId id) { return {this, id}; }
  // "x" for an input of that name, "%3" for the third value that a node defines.
  std::string value_name(ValueId id) const;
  // `conv2d "layer1.conv1"`: how errors name a node.
  std::string node_name(NodeId id) const;

  // What new nodes get as source, forward and mark; set by SourceScope and RecomputeScope.
  struct Origin {
    std::string source;
    NodeId forward = kNone;
    RecomputeMark recompute = {};
    int stage = kNone;
  };
  const Origin& origin() const { return origin_; }
  void set_origin(Origin origin) { origin_ = std::move(origin); }

 private:
  std::string name_;
  std::vector<Input> inputs_;
  // Deques: references to types and nodes stay valid while nodes are added.
  std::deque<Node> nodes_;
  std::deque<ValueInfo> values_;
  std::vector<Output> outputs_;
  // Places in inputs_ and outputs_, by name.
  std::map<std::string, size_t, std::less<>> input_numbers_;
  std::map<std::string, size_t, std::less<>> output_numbers_;
  std::map<std::string, ValueId> assignments_;
  Origin origin_;
};

// Nodes added while it lives come from `source` (and belong to the forward node `forward`).
class SourceScope {
 public:
  SourceScope(Graph& graph, std::string source, NodeId forward = kNone) : graph_(graph), previous_(graph.origin()) {
    graph_.set_origin({std::move(source), forward, previous_.recompute, previous_.stage});
  }
  ~SourceScope() { graph_.set_origin(previous_); }
  SourceScope(const SourceScope&) = delete;
  SourceScope& operator=(const SourceScope&) = delete;

 private:
  Graph& graph_;
  Graph::Origin previous_;
};

// Nodes added while it lives are a block that is recomputed, the next of the graph.
class RecomputeScope {
 public:
  RecomputeScope(Graph& graph, bool repeats_collectives, bool gathers_parameters);
  ~RecomputeScope() { graph_.set_origin(previous_); }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  Graph& graph_;
  Graph::Origin previous_;
};

// Nodes added while it lives are on that pipeline stage, unless a scope within says otherwise.
class StageScope {
 public:
  StageScope(Graph& graph, int stage) : graph_(graph), previous_(graph.origin()) {
    auto origin = previous_;
    origin.stage = stage;
    graph_.set_origin(std::move(origin));
  }
  ~StageScope() { graph_.set_origin(previous_); }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  Graph& graph_;
  Graph::Origin previous_;
};

// Canonical text; parse(print(g)) prints equally. One line per input, node and the return:
//   graph train_step
//     param fc.weight f32[10,64]
//     input x f32[32,64]
//     %1 = matmul x, fc.weight {transpose_b} : f32[32,10] @ fc
//     %2 = relu %1 : f32[32,10] shard ((4,1)) @ . (grad of %1)
//     %3 = relu %1 : f32[32,10] recompute 2 keep_collectives gather_parameters @ block
//     %4 = relu %1 : f32[32,10] @ block (again %3)
//     %5 = relu %1 : f32[32,10] stage 1 @ block
//     return loss = %2, fc.weight = %1
std::string print(const Graph& graph);
// Throws InvalidArgument naming the line and what was expected. Only the form is checked: see verify for the meaning.
Graph parse(std::string_view text);

}  // namespace tessera::ir
