// How fast the ranks of a machine are, measured: what a compiler::MachineProfile says of them. Every rank of the
// context calls these functions; all are at work at once, as in a job, for together they are slower than one alone, and
// all get the same figures.
#pragma once

#include <cstdint>

#include "tessera/base/function_ref.h"
#include "tessera/cluster/context.h"
#include "tessera/comm/speed.h"
#include "tessera/compiler/machine_profile.h"
#include "tessera/ir/graph.h"

namespace tessera::session {

// Of the fastest of some runs, from when all ranks have come until the last is done. What takes longer than half a
// second is run once.
double least_seconds(cluster::Context& context, FunctionRef<void()> run);
// Of a graph that each rank runs for itself, on inputs that are zero.
double least_seconds(cluster::Context& context, const ir::Graph& graph);

// The product of two matrices [size,size].
ir::Graph product_graph(DType dtype, int64_t size);

// What was done in how many seconds.
struct Measured {
  double amount = 0;
  double seconds = 0;
  double per_second() const { return amount / seconds; }
};
// Operations of a product_graph().
Measured measure_matmul(cluster::Context& context, DType dtype, int64_t size);
// Bytes of `count` steps, one after the other, that each read and write so many.
Measured measure_memory(cluster::Context& context, int64_t bytes, int count);
// The seconds of one of `count` steps x = step(x, other), one after the other, on values of this type.
double chain_seconds(cluster::Context& context, const Type& type, int count,
                     FunctionRef<ir::Value(ir::Value x, ir::Value other)> step);
// Of one of `count` kernels that have next to nothing to do.
double kernel_overhead_seconds(cluster::Context& context, int count);

// The link among so many ranks, at least 2, whose all_reduces are that fast. An all_reduce is two rounds, in which a
// rank receives 2 (n-1)/n of its buffer.
compiler::Link link_of(const comm::GroupSpeed& speed, int num_ranks);

}  // namespace tessera::session
