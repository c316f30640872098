// The plan of a training step in automatic parallelism: rank 0 searches, all ranks take what it has found.
#pragma once

#include <memory>

#include "tessera/cluster/ranks/context.h"
#include "tessera/train/options/automatic_options.h"

namespace tessera::train {

// The plan for a step; `graph` as it was traced. Rank 0 says in one line what it is. Every rank calls it; throws what
// rank 0's search throws, on all ranks, and InvalidArgument naming the rank whose graph is another than rank 0's.
std::shared_ptr<const compiler::PlanRecord> plan_automatically(cluster::Context& context, const ir::Graph& graph,
                                                               const AutomaticPlanOptions& options);

}  // namespace tessera::train
