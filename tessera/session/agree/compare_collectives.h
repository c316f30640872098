// Whether the ranks of a job will do the same: asked once, before the first step of a graph.
#pragma once

#include "tessera/cluster/ranks/context.h"
#include "tessera/ir/graph.h"

namespace tessera::session {

// Every rank calls it, each with its own local graph. Group by group the members must have the same collectives under
// the same numbers, which is compared by hashes. Throws InvalidArgument on every rank naming the first group in which
// they do not, two of its ranks and the first line in which they differ.
void compare_collectives(cluster::Context& context, const ir::Graph& local);

// Collective over all ranks, each with the graph that all are to share. Where a rank's differs though it communicates
// alike (a constant, an optimizer's setting), rank 0 warns, naming the rank and the first line in which they differ:
// what they compute together is the result of no network.
void warn_of_different_graphs(cluster::Context& context, const ir::Graph& logical);

}  // namespace tessera::session
