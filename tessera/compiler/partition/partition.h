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
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/plan/plan.h"
#include "tessera/mesh/redistribution/redistribution.h"

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

// Which collectives of one kind travel together. Never changes a result, only where buckets end.
struct Fusion {
  enum class Mode {
    kAuto,   // a bucket is closed when it holds PartitionOptions::bucket_bytes
    kSize,   // ... when it holds `bytes`
    kIndex,  // ... before the gradients (or parameters) of these numbers, counted in the order in which they are ready
    kOff     // each on its own
  };
  Mode mode = Mode::kAuto;
  int64_t bytes = 0;
  std::vector<int64_t> index = {};
};

// Small enough that the first bucket is on its way while backward runs.
inline constexpr int64_t kDefaultBucketBytes = 8 << 20;

struct PartitionOptions {
  // 0: kDefaultBucketBytes; a session then takes what suits the speed of its ranks' links.
  int64_t bucket_bytes = 0;
  Fusion all_reduce_fusion = {};
  Fusion all_gather_fusion = {};
  Fusion reduce_scatter_fusion = {};
  // An id for each parameter: its collectives share buckets only with collectives of an equal id; 0: with none. Others
  // have id 1.
  std::map<std::string, int> fusion_ids = {};
  // Parameters are gathered ahead of their first use, as long as less than this waits to be used.
  int64_t prefetch_bytes = 16 << 20;
  mesh::RedistributionOptions redistribution;
};

// Throws InvalidArgument when `rank` is not in the plan's mesh, or a node cannot be written for one rank. `groups`
// receives those of all ranks, the same on every rank; `steps` which local nodes are which logical node.
ir::Graph partition(const ir::Graph& graph, const Plan& plan, int rank, const PartitionOptions& options = {},
                    GroupLists* groups = nullptr, std::vector<LogicalStep>* steps = nullptr);

// The collectives of a local graph in their order, one line each with group, operator, dtype and number of dims: equal
// on every rank, or the job must not start.
std::string collective_list(const ir::Graph& local);

}  // namespace tessera::compiler
