// The arithmetic of reductions between ranks: element by element, in the order of the sources.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/comm/communicator.h"
#include "tessera/tensor/dtype.h"

namespace tessera::comm {

// Throws InvalidArgument naming `who` when values of `dtype` cannot be reduced by `op`: a type without compute kernels,
// or the sum of bools.
void check_reducible(DType dtype, ReduceOp op, std::string_view who);

// result[i] = (((sources[0][i] op sources[1][i]) op sources[2][i]) ...) for i in [0, count), written to each of `outs`,
// which may be sources. bf16 and f16 are reduced in f32 and rounded once. A NaN in any source gives NaN under every op.
// `past_caches` writes large results straight to memory: for outs that other cores read next, or nobody soon.
void reduce_in_order(std::span<void* const> outs, std::span<const void* const> sources, int64_t count, DType dtype,
                     ReduceOp op, bool past_caches = false);

inline void reduce_in_order(void* out, std::span<const void* const> sources, int64_t count, DType dtype, ReduceOp op) {
  reduce_in_order(std::span<void* const>(&out, 1), sources, count, dtype, op);
}

}  // namespace tessera::comm
