// How fast a rank of this machine is, measured: what a compiler::MachineProfile says of it.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "tessera/cluster/ranks/context.h"
#include "tessera/comm/speed.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/ir/graph.h"

namespace tessera::session {

// What was done in how many seconds.
struct Measured {
  double amount = 0;
  double seconds = 0;
  double per_second() const { return amount / seconds; }
};

// All that follows is called by every rank of the context at the same time, as in a job: together they are slower than
// one alone. What is measured is the time of the slowest rank, and the same on all of them.

// The fastest of some runs of a graph, on inputs that are zero. What takes longer than half a second is run once.
double fastest_run_seconds(cluster::Context& context, const ir::Graph& graph);

// Operations of a product of two matrices [size,size].
Measured measure_matmul(cluster::Context& context, DType dtype, int64_t size);
// Operations of a 3x3 convolution of so many images, as in the middle of a residual network, and of its two gradients.
Measured measure_convolution(cluster::Context& context, DType dtype, int64_t num_images);
// What f32 convolutions of so many channels and pixels (multiples of 64, of images of 8x8) reach of `flops_per_second`,
// beyond `overhead_seconds` for each kernel: above 0, at most 1, not less than what fewer channels or pixels reach.
// MachineProfile::convolution_shares.
std::map<int64_t, std::map<int64_t, double>> measure_convolution_shares(cluster::Context& context,
                                                                        double flops_per_second,
                                                                        double overhead_seconds,
                                                                        std::span<const int64_t> channels,
                                                                        std::span<const int64_t> pixels);
// Operations of what is neither, as ops::Cost counts them: a transcendental function of values in a cache.
Measured measure_functions(cluster::Context& context, DType dtype);
// Bytes, of steps that read and write so many of them each.
Measured measure_memory(cluster::Context& context, int64_t bytes);
// Bytes a second of steps of each of these sizes, largest first: not less than `memory`, that of larger ones, and not
// less than those of the sizes before. MachineProfile::cached_bytes_per_second.
std::map<int64_t, double> measure_caches(cluster::Context& context, double memory, std::span<const int64_t> sizes);
// So many kernels that have next to nothing to do.
Measured measure_kernels(cluster::Context& context, int num_kernels);
// The share of a collective's time by which computing takes longer while it runs beside it, from 0 to 1.
double measure_communication_load(cluster::Context& context);

// The link among so many ranks, at least 2, whose all_reduces are that fast. An all_reduce is two rounds, in which a
// rank receives 2 (n-1)/n of its buffer.
compiler::Link link_of(const comm::GroupSpeed& speed, int num_ranks);

}  // namespace tessera::session
