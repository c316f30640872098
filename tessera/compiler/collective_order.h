// The collectives of a local graph: which travel together, and in which order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/partition.h"

namespace tessera::compiler {

// The local nodes of one logical node. What they read and make as a whole: a rank whose part is empty may leave out
// nodes, but decides on the order of collectives as if it had not.
struct LogicalStep {
  ir::NodeId begin = 0;
  ir::NodeId end = 0;  // behind its last local node
  std::vector<ir::ValueId> inputs;
  std::vector<ir::ValueId> outputs;
};

// What order_collectives() needs to know beside the local graph, the same on every rank.
struct CollectiveFacts {
  std::vector<LogicalStep> steps;
  // Of the all_reduces, all_gathers and reduce_scatters of redistributions: bytes of the largest buffer on any rank.
  // Those inside of operators count as nothing: they are small.
  std::map<ir::NodeId, int64_t> bytes;
  // Of those whose result only the update of one parameter wants, or that make a parameter whole: its fusion id.
  std::map<ir::NodeId, int> fusion_ids;
};

// Puts collectives of one kind, group, reduction and dtype into buckets, as the options say, and numbers all in the
// order in which they are sent: a bucket goes when its last member is there. It is closed when it is full or one of its
// results is wanted.
void order_collectives(ir::Graph& local, const CollectiveFacts& facts, const PartitionOptions& options);

}  // namespace tessera::compiler
