// Copying a graph node by node into a new one, for passes that drop, merge or replace nodes.
#pragma once

#include <span>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

// What a node says beside its operator, attributes and operands; `again` and `recompute` included.
void copy_marks(const ir::Node& from, ir::Node& to);

class Rewriter {
 public:
  explicit Rewriter(const ir::Graph& from);

  ir::Graph& graph() { return to_; }
  // The new value of an old one; it must have been set.
  ir::Value at(ir::ValueId old) const;
  void set(ir::ValueId old, ir::Value value) { values_[static_cast<size_t>(old)] = value; }
  // Copies a node as it is, its operands replaced by their new values.
  void copy(ir::NodeId node);
  // Sets source and forward of the nodes added next to those of an old one.
  void set_origin(ir::NodeId node);
  // The same for nodes that several old ones become: source and forward of the last, and the line of the last one that
  // has a line.
  void set_origin(std::span<const ir::NodeId> nodes);
  // Gradients of an old node belong to `now` from here on.
  void stands_for(ir::NodeId old, ir::NodeId now) { nodes_[static_cast<size_t>(old)] = now; }
  ir::NodeId new_node(ir::NodeId old) const { return nodes_[static_cast<size_t>(old)]; }
  // Adds the outputs and returns the new graph. Call once, last.
  ir::Graph finish();

 private:
  const ir::Graph& from_;
  ir::Graph to_;
  std::vector<ir::Value> values_;
  std::vector<ir::NodeId> nodes_;  // the new node of an old one
};

}  // namespace tessera::compiler
