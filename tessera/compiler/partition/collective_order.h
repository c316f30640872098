// The collectives of a local graph: which travel together, and in which order.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/partition/partition.h"

namespace tessera::compiler {

// What order_collectives() needs to know beside the local graph, the same on every rank. A rank whose part is empty
// decides by its steps as a whole, as if it had left out no node.
struct CollectiveFacts {
  std::vector<LogicalStep> steps;
  // The bytes of an all_reduce, all_gather or reduce_scatter that redistributes: of the largest buffer on any rank; and
  // of an all_reduce that the graph itself has.
  // Collectives inside of operators count as nothing: they are small.
  std::map<ir::NodeId, int64_t> bytes;
  // The fusion id of a collective whose result only one parameter's update reads, or that makes a parameter whole.
  std::map<ir::NodeId, int> fusion_ids;
  // Collectives whose result another collective reads, on any rank.
  std::set<ir::NodeId> awaited;
  // Collectives that the graph itself has. Ranks whose graphs differ may wait for them at different places.
  std::set<ir::NodeId> written;
};

// Puts collectives of one kind, group, reduction and dtype into buckets, as the options say, and numbers all in the
// order in which they are sent: a bucket goes when its last member is there. It is closed when it is full or one of its
// results is wanted. What later collectives wait for, as backward does for statistics of a split batch, gets a lane of
// its own, so that it does not stand behind gradients.
void order_collectives(ir::Graph& local, const CollectiveFacts& facts, const PartitionOptions& options);

}  // namespace tessera::compiler
