// How fast the machine is that a training runs on, for modes that plan its step.
#pragma once

#include "tessera/cluster/ranks/context.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/ir/graph.h"

namespace tessera::train {

// How fast these ranks are, all at work, and the world's collectives, as far as the times of this graph depend on it;
// takes a fraction of a second, or about one for a graph with convolutions. Every rank calls it; all get the same.
compiler::MachineProfile measure_briefly(cluster::Context& context, const ir::Graph& graph);

}  // namespace tessera::train
