// Blocks of a network that are to be recomputed (Cell::recompute): their inner values are dropped after the forward
// pass; what other blocks read of them is kept.
#pragma once

#include <vector>

#include "tessera/compiler/partition/partition.h"
#include "tessera/compiler/plan/plan.h"

namespace tessera::compiler {

// Makes the marks of the logical graph's nodes true: gradients read copies of a block's inner values, which lie and are
// split as the values do. Communication in a block is repeated where the marks say so; else what it results in is kept.
// Decided for all ranks at once. Does nothing to a graph without marks.
void recompute_blocks(ir::Graph& logical, Plan& plan, const PartitionOptions& options = {});
// The same for a graph that has several plans, on ranks of their own: dropped is what all of them can do without.
void recompute_blocks(ir::Graph& logical, const std::vector<Plan*>& plans, const PartitionOptions& options = {});

}  // namespace tessera::compiler
