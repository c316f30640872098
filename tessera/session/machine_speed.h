// How fast a rank of this machine is, measured: what a compiler::MachineProfile says of it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tessera/comm/speed.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/ir/graph.h"
#include "tessera/session/run_timer.h"

namespace tessera::session {

// What was done in how many seconds.
struct Measured {
  double amount = 0;
  double seconds = 0;
  double per_second() const { return amount / seconds; }
};

// All that follows is called by every rank at the same time, each with a timer of its own context.

// The fastest of some runs of a graph, on inputs that are zero.
double fastest_run_seconds(RunTimer& timer, const ir::Graph& graph);

// Operations of a product of two matrices [size,size].
Measured measure_matmul(RunTimer& timer, DType dtype, int64_t size);
// Operations of a 3x3 convolution of so many images, as in the middle of a residual network, and of its two gradients.
Measured measure_convolution(RunTimer& timer, DType dtype, int64_t num_images);
// What f32 convolutions of these sizes reach of `flops_per_second`, beyond `overhead_seconds`: forward, the gradient of
// the images and that of the weight apart, each with windows of 3x3 and 1x1 pixels, with and without strides.
// MachineProfile::convolution_shares.
struct ConvolutionGrid {
  std::vector<int64_t> in_channels;
  std::vector<int64_t> out_channels;
  std::vector<int64_t> pixels;  // multiples of 64, the pixels of an image's results
};
compiler::ConvolutionShares measure_convolution_shares(RunTimer& timer, double flops_per_second,
                                                       double overhead_seconds, const ConvolutionGrid& grid);
// Operations of what is neither, as ops::Cost counts them: a transcendental function of values in a cache.
Measured measure_functions(RunTimer& timer, DType dtype);
// Bytes, of steps that read and write so many of them each.
Measured measure_memory(RunTimer& timer, int64_t bytes);
// Bytes read and written a second by copies of pieces of each of these sizes, shortest first, that lie apart on one
// side: not less than of shorter ones. MachineProfile::copied_bytes_per_second.
std::map<int64_t, double> measure_copies(RunTimer& timer, std::span<const int64_t> piece_bytes);
// Bytes that a convolution of images that lie row by row reads and writes in what it takes longer than for
// channels-last ones. MachineProfile::rearranged_bytes_per_second.
Measured measure_rearranging(RunTimer& timer);
// Bytes a second of steps of each of these sizes, largest first: not less than `memory`, that of larger ones, and not
// less than those of the sizes before. MachineProfile::cached_bytes_per_second.
std::map<int64_t, double> measure_caches(RunTimer& timer, double memory, std::span<const int64_t> sizes);
// So many kernels that have next to nothing to do.
Measured measure_kernels(RunTimer& timer, int num_kernels);
// The share of a collective's time by which computing takes longer while it runs beside it, from 0 to 1.
double measure_communication_load(RunTimer& timer);

// The link among so many ranks, at least 2, whose all_reduces are that fast. An all_reduce is two rounds, in which a
// rank receives 2 (n-1)/n of its buffer.
compiler::Link link_of(const comm::GroupSpeed& speed, int num_ranks);

}  // namespace tessera::session
