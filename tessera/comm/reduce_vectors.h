// The vector part of reduce_in_order().
#pragma once

#include <cstdint>
#include <span>

#include "tessera/comm/communicator.h"
#include "tessera/tensor/dtype.h"

namespace tessera::comm {

// Reduces the first elements, as many as whole vectors hold, with the bits of the plain loops; returns how many. 0 for
// dtypes other than f32, f64 and bf16. `past_caches` needs outs that begin on cache lines.
int64_t reduce_vectors(std::span<void* const> outs, std::span<const void* const> sources, int64_t count, DType dtype,
                       ReduceOp op, bool past_caches);

}  // namespace tessera::comm
