// Reductions as device text: many elements become one, in an order that the shapes alone decide.
//
// A block is a grid of threads, kThreads in all, over kept elements and reduced ones. Where neighbours in memory are
// reduced, neighbouring threads share a kept element (rows); where they are kept, each thread has its own (columns).
// Where there are too few kept elements for all processors, the reduced ones are divided among blocks, whose results
// stand in scratch memory until a second phase has combined them.
#pragma once

#include <string>

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

// How a reduction is computed: types and expressions of device text.
struct ReductionText {
  std::string accumulator;  // a type
  std::string begin;        // what nothing is reduced to
  std::string taken;        // the accumulator of one element, `x`
  std::string combined;     // of two accumulators, `a` and `b`
  std::string ended;        // the result's element, of the accumulator `a`
};

// An operand's dims, with the strides of operand and result: those kept and those reduced.
struct ReducedDims {
  Shape kept;
  Strides kept_in;
  Strides kept_out;
  Shape reduced;
  Strides reduced_in;
};

// The kernel that reduces in0 to out0.
DeviceProgram write_reduction(const KernelRequest& request, const Gpu& gpu, const ReductionText& reduction,
                              const ReducedDims& dims);

}  // namespace tessera::cuda
