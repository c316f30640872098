// Random strategies for the operators of a traced train step.
#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

namespace tessera::equivalence {

// Gives most operators that the loss is computed with a strategy: every factor of its rule may be split, in numbers
// whose product divides the ranks, even where that leaves ranks without elements. Operators that share a parameter
// split it alike. The same for the same seed. Returns how many operators got one.
int add_random_strategies(ir::Graph& graph, int num_ranks, uint64_t seed);

}  // namespace tessera::equivalence
