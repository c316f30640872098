// Graph: a list of nodes in SSA form: each value is defined once, before its uses. Pure: parameters and states are
// inputs, their new values are outputs. The same form serves all stages: with global shapes (logical) or with one
// rank's (local), where collectives are ordinary nodes.
//
// Not thread-safe. Values and nodes are numbers that stay valid while the graph lives; Value is a handle that carries
// its graph, so that operators can be written as functions of values. A handle that is kept for longer still knows its
// type and where it was made, but no operator takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/ir/logical_place.h"
#include "tessera/mesh/strategy.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/type.h"

namespace tessera::ir {

class Graph;
struct GraphAnchor;
using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

class Value {
 public:
  Value() = default;

  explicit operator bool() const { return anchor_ != nullptr; }
  // Of a value whose graph is gone: what is left of it, a closed graph.
  Graph& graph() const;
  ValueId id() const { return id_; }
  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int ndim() const { return shape().ndim(); }
  bool operator==(const Value&) const = default;

 private:
  friend class Graph;
  Value(std::shared_ptr<GraphAnchor> anchor, ValueId id) : anchor_(std::move(anchor)), id_(id) {}

  std::shared_ptr<GraphAnchor> anchor_;
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
  // On which grid of the ranks the strategy's parts lie; empty: in the order of its counts.
  mesh::StrategyGrid grid = {};
  RecomputeMark recompute = {};
  // Computes for gradients what the node `forward` has computed before.
  bool again = false;
  // The pipeline stage that the user wants it on: a hint, of forward nodes. kNone: that of its neighbours.
  int stage = kNone;
  // Of a network that goes over the stages several times, in which of these passes; from 0.
  int segment = 0;
  // The dtype that the user wants it computed in; a hint that the rewrite for mixed precision follows and takes away.
  std::optional<DType> compute_dtype = std::nullopt;
  // The line of the script that made it, or its forward node: "model.py:41"; "" where that is not known. It is printed
  // by errors and reports and is no part of the graph's text.
  std::string line = {};
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
  NodeId node = kNone;        // kNone for an input of the graph
  int index = 0;              // which output of the node, or which input of the graph
  LogicalPlace logical = {};  // of a value of a rank's graph; it is no part of the text
};

class Graph {
 public:
  explicit Graph(std::string name = "graph") { data_.name = std::move(name); }
  // A copy is open; its values have equal ids, but Value handles of the original do not refer to it. Where a graph
  // moves its handles go with it.
  Graph(const Graph& other) : data_(other.data_) {}
  Graph(Graph&& other) noexcept;
  Graph& operator=(const Graph& other);
  Graph& operator=(Graph&& other) noexcept;
  // Handles of its values that are still there get what is left of it to refer to.
  ~Graph() { leave_to_handles(); }

  const std::string& name() const { return data_.name; }
  void set_name(std::string name) { data_.name = std::move(name); }

  // Throws InvalidArgument when the name is taken by an input of another kind or type; returns the existing value when
  // it is there with the same. Throws InvalidArgument, as add_node, add_output and assign do, when the graph is closed.
  Value add_input(InputKind kind, const std::string& name, const Type& type);
  // Appends a node; its outputs get the types given. Throws InvalidArgument for an input that is no value of this
  // graph.
  std::vector<Value> add_node(std::string op, std::span<const Value> inputs, Attributes attributes,
                              std::span<const Type> output_types);
  void add_output(const std::string& name, Value value);

  // The latest value of a parameter or state: what was assigned, else the input.
  std::optional<Value> find_binding(const std::string& name) const;
  // Makes `value` what later reads of `name` see. finish_assignments() turns what was assigned into outputs, in the
  // order of the inputs.
  void assign(const std::string& name, Value value);
  // Makes `value` what later reads of `name` see until it is rebound, and no output: whoever does so puts back what it
  // was. The input itself: nothing is assigned. Throws as assign() does.
  void rebind(const std::string& name, Value value);
  void finish_assignments();
  const std::map<std::string, ValueId>& assignments() const { return data_.assignments; }

  const std::vector<Input>& inputs() const { return data_.inputs; }
  const std::vector<Output>& outputs() const { return data_.outputs; }
  void clear_outputs();
  const Input* find_input(std::string_view name) const;
  const Output* find_output(std::string_view name) const;
  int num_nodes() const { return static_cast<int>(data_.nodes.size()); }
  int num_values() const { return static_cast<int>(data_.values.size()); }
  const Node& node(NodeId id) const { return data_.nodes[static_cast<size_t>(id)]; }
  Node& mutable_node(NodeId id) { return data_.nodes[static_cast<size_t>(id)]; }
  const ValueInfo& info(ValueId id) const { return data_.values[static_cast<size_t>(id)]; }
  const Type& type(ValueId id) const { return info(id).type; }
  // Says which value of the logical graph this one is, unless that is said already.
  void set_logical(ValueId id, const LogicalPlace& place);
  Value value(ValueId id);
  // A closed graph takes no more nodes, inputs and assignments: its trace has ended. Copies are open.
  void close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  // Whether nodes of this graph can read the value: it is one of its own, and the graph is open.
  bool takes(const Value& value) const { return !is_closed_ && &value.graph() == this; }
  // Throws InvalidArgument saying that `who` is such a value as this graph does not take, and where it comes from.
  [[noreturn]] void refuse(const Value& value, const std::string& who) const;
  // "x" for an input of that name, "%3" for the third value that a node defines.
  std::string value_name(ValueId id) const;
  // `conv2d "layer1.conv1"`: how errors name a node.
  std::string node_name(NodeId id) const;

  // What new nodes get as source, forward, mark and line; set by SourceScope and RecomputeScope.
  struct Origin {
    std::string source;
    NodeId forward = kNone;
    RecomputeMark recompute = {};
    int stage = kNone;
    int segment = 0;
    std::string line = {};
  };
  const Origin& origin() const { return data_.origin; }
  void set_origin(Origin origin) { data_.origin = std::move(origin); }
  // Who says in which line of a script a node is made that has no other; null: nobody. Returns who did before. It is
  // not copied with the graph.
  using LineFinder = std::function<std::string()>;
  LineFinder set_line_finder(LineFinder finder) { return std::exchange(line_finder_, std::move(finder)); }

 private:
  struct Data {
    std::string name;
    std::vector<Input> inputs;
    // Deques: references to types and nodes stay valid while nodes are added.
    std::deque<Node> nodes;
    std::deque<ValueInfo> values;
    std::vector<Output> outputs;
    // Places in inputs and outputs, by name.
    std::map<std::string, size_t, std::less<>> input_numbers;
    std::map<std::string, size_t, std::less<>> output_numbers;
    std::map<std::string, ValueId> assignments;
    Origin origin;
  };
  void check_open(const std::string& who) const;
  void take(Graph& other) noexcept;
  void leave_to_handles() noexcept;

  std::string line_of_next_node() const;

  Data data_;
  bool is_closed_ = false;
  LineFinder line_finder_;
  // What handles hold; made with the first. Null for a graph that was moved from.
  std::shared_ptr<GraphAnchor> anchor_;
};

// Nodes added while it lives come from `source` (and belong to the forward node `forward`), and from the line of a
// script.
class SourceScope {
 public:
  SourceScope(Graph& graph, std::string source, NodeId forward = kNone, std::string line = "")
      : graph_(graph), previous_(graph.origin()) {
    graph_.set_origin(
        {std::move(source), forward, previous_.recompute, previous_.stage, previous_.segment, std::move(line)});
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

// Nodes added while it lives are on that pipeline stage, in that segment, unless a scope within says otherwise.
class StageScope {
 public:
  StageScope(Graph& graph, int stage, int segment = 0) : graph_(graph), previous_(graph.origin()) {
    auto origin = previous_;
    origin.stage = stage;
    origin.segment = segment;
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
