// One choice of kernels for all ranks of a job, so that what several of them compute has equal bits.
#pragma once

#include "tessera/cluster/ranks/context.h"
#include "tessera/executor/kernel_selection.h"

namespace tessera::session {

// Every rank calls it. Rank 0 answers all requests that a rank noted (KernelSelection::Unknown::kNote), from its table
// or by measuring, and every rank takes all answers into its table. Returns whether there were any.
bool agree_on_kernels(cluster::Context& context, const executor::KernelSelection& kernels,
                      executor::KernelTable& table);

}  // namespace tessera::session
