// Partition: a logical graph and its plan, projected to one rank: local shapes, and collectives as ordinary nodes where
// an operand's sharding differs from the one it was produced in.
//
// Every rank gets the same list of collectives in the same order, with equal `order` attributes: the list is made from
// global shapes only. Sums are completed as soon as they are there, shards of parameters gathered a while before they
// are used; updates of parameters come last. Collectives of one kind, group, reduction and dtype share a bucket
// (attribute `bucket`), which the schedule runs as one, those that something communicated later waits for apart from
// the rest.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/partition/partition_options.h"
#include "tessera/compiler/plan/plan.h"

namespace tessera::compiler {

// The local nodes [begin, end) of one logical node; the local values that are its operands, in the shardings that the
// plan wants them in, and its results, as the plan says they are produced. A rank whose part is empty may leave out
// nodes. What stands between steps moves values: redistributions.
struct LogicalStep {
  ir::NodeId node = ir::kNone;
  ir::NodeId begin = 0;
  ir::NodeId end = 0;
  std::vector<ir::ValueId> inputs;
  std::vector<ir::ValueId> outputs;
};

// The world ranks of the groups in which the ranks of a plan communicate, each in its order.
using GroupLists = std::set<std::vector<int>>;

// Throws InvalidArgument when `rank` is not in the plan's mesh, or a node cannot be written for one rank. `groups`
// receives those of all ranks, the same on every rank; `steps` which local nodes are which logical node.
ir::Graph partition(const ir::Graph& graph, const Plan& plan, int rank, const PartitionOptions& options = {},
                    GroupLists* groups = nullptr, std::vector<LogicalStep>* steps = nullptr);

// The collectives of a local graph in their order, one line each with group, operator, dtype and number of dims: equal
// on every rank, or the job must not start.
std::string collective_list(const ir::Graph& local);

}  // namespace tessera::compiler
