// Partition: a logical graph and its plan, projected to one rank: local shapes, and collectives as ordinary nodes where
// an operand's sharding differs from the one it was produced in.
//
// Every rank gets the same list of collectives in the same order, with equal `order` attributes: the list is made from
// global shapes only. Sums are completed as soon as they are there; updates of parameters come last. All_reduces of one
// group, reduction and dtype share a bucket (attribute `bucket`), which the schedule runs as one, those that something
// communicated later waits for apart from the rest.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/plan.h"
#include "tessera/mesh/redistribution.h"

namespace tessera::compiler {

// The world ranks of the groups in which the ranks of a plan communicate, each in its order.
using GroupLists = std::set<std::vector<int>>;

struct PartitionOptions {
  // A bucket is closed when it holds this much; small enough that the first is on its way while backward runs.
  int64_t bucket_bytes = 8 << 20;
  mesh::RedistributionOptions redistribution;
};

// Throws InvalidArgument when `rank` is not in the plan's mesh, or a node cannot be written for one rank. `groups`
// receives those of all ranks, the same on every rank.
ir::Graph partition(const ir::Graph& graph, const Plan& plan, int rank, const PartitionOptions& options = {},
                    GroupLists* groups = nullptr);

// The collectives of a local graph in their order, one line each with group, operator, dtype and number of dims: equal
// on every rank, or the job must not start.
std::string collective_list(const ir::Graph& local);

}  // namespace tessera::compiler
