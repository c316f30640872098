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
  // By NodeId: when the node reads its operands, as an index into `nodes`. The members of a bucket read them when the
  // last of them is there.
  std::vector<int> reads_at;
  // Where the updates begin whose results nobody reads: all that is before them can be checked before anything is
  // written.
  int first_update = 0;
};
// As the graph has them, updates that nobody reads at the end, those whose gradients are ready first in front: so the
// last bucket's wait does not hold up the first update.
NodeOrder order_nodes(const ir::Graph& graph, const ValueUses& uses);

// The bucket of a collective that is in one; -1 for all other nodes.
int64_t bucket_of(const ir::Node& node);

}  // namespace tessera::compiler
