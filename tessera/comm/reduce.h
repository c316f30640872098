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

// out[i] = (((sources[0][i] op sources[1][i]) op sources[2][i]) ...) for i in [0, count). bf16 and f16 are reduced in
// f32 and rounded once. A NaN in any source gives NaN under every op. `out` may be one of the sources.
void reduce_in_order(void* out, std::span<const void* const> sources, int64_t count, DType dtype, ReduceOp op);

}  // namespace tessera::comm
