// This is base/random.h's random_uniform for many indices at once.
#pragma once

#include <cstdint>

#include "tessera/base/random.h"

namespace tessera::kernels::cpu {

// bits[i] = the 24 bits that random_uniform(stream, first + i * stride) is made of, for i < n.
using UniformBits = void (*)(const RandomStream& stream, uint64_t first, uint64_t stride, uint32_t* bits, int64_t n);
// y[i] = bits[i] < threshold ? x[i] / divisor : 0. y may be x.
using DropRow = void (*)(const float* x, const uint32_t* bits, uint32_t threshold, float divisor, float* y, int64_t n);

UniformBits uniform_bits();
DropRow drop_row();

}  // namespace tessera::kernels::cpu
