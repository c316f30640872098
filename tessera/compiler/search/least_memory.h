// What a step takes of memory however it is split, known without a search.
#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

struct LeastMemory {
  int64_t persistent_bytes = 0;  // of parameters and states, on all ranks together
  int64_t result_bytes = 0;      // of the product or convolution that makes most, on all ranks together
  ir::NodeId node = ir::kNone;   // which one that is; kNone where there is none

  // Some rank has at least so much of it.
  int64_t on_a_rank(int num_ranks) const;
};
// Parameters and states are there while the product or convolution with the largest results runs, and whatever is
// computed again, each element lies on a rank. Elementwise operators that follow count at the size that they leave,
// since they may be fused. `graph` is a step as plan_ranks() simplifies it.
LeastMemory least_memory(const ir::Graph& graph);

// Throws InvalidArgument where no plan can keep within the limit of a rank's arena (0: none).
void require_memory(const ir::Graph& graph, int num_ranks, int64_t memory_limit_bytes);

}  // namespace tessera::compiler
