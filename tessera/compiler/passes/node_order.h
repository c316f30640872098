// The order in which the nodes of a local graph become steps, and what that order is made from: who reads each value,
// and which values replace parameters and states.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

struct ValueUses {
  std::vector<std::vector<ir::NodeId>> users;               // by ValueId, in the order of the graph
  std::vector<bool> is_result;                              // by ValueId: an output of the graph
  std::map<ir::ValueId, std::vector<ir::ValueId>> updates;  // new value -> the inputs that it replaces

  // Whether a result of the node replaces a parameter or state.
  bool is_update(const ir::Node& node) const;
};
ValueUses find_uses(const ir::Graph& graph);

struct NodeOrder {
  std::vector<ir::NodeId> nodes;
  // When each node reads its operands, by NodeId, as an index into `nodes`. The members of a bucket read them when the
  // last of them is there.
  std::vector<int> reads_at;
  // Whether a node is an update whose results nobody reads, by NodeId. They alone may write where the old values are:
  // all that must be known before stands in front of them.
  std::vector<bool> is_late_update;
};
// The order is that of the graph, but for two things. Neighbours change places where less is alive between them then,
// as the gradient of a weight and that of the image: the first lets go of what the forward pass kept, the second needs
// memory. And an update that nobody reads stands where its operands are there, loss and guard are known and nobody
// reads the old value any more: gradients live shortly. Where there are collectives, the updates stand at the end
// instead, in the order in which their gradients are ready: to wait for a bucket before the next is on its way would
// cost time.
NodeOrder order_nodes(const ir::Graph& graph, const ValueUses& uses);

// The bucket of a collective that is in one; -1 for all other nodes.
int64_t bucket_of(const ir::Node& node);
// The node behind which a node's results are there, by NodeId. The node itself, or the last of its bucket.
std::vector<ir::NodeId> nodes_behind(const ir::Graph& graph);

}  // namespace tessera::compiler
