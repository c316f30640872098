// Element operators on rows: what the elementwise kernels do to a run of floats, compiled for several instruction sets
// of which the best that this machine has is taken at run time. Everything is computed in f32; the conversions read and
// write the other dtypes. NaN propagates through every operation (maximum and relu included); comparisons give 1 or 0.
#pragma once

#include <cstddef>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/element_op.h"

namespace tessera::kernels::cpu {

// y[i] = op(a[i], b[i], c[i]) for i < n; operands beyond the arity are not read. y may be one of the operands.
using RowFunction = void (*)(const float* a, const float* b, const float* c, float* y, size_t n);
// Reads n elements of a dtype as floats, and writes floats as that dtype: half types round to nearest even, u8
// truncates and saturates (NaN: 0), bool is 1 or 0 in and non-zero out.
using RowLoad = void (*)(const void* from, float* to, size_t n);
using RowStore = void (*)(const float* from, void* to, size_t n);

RowFunction row_function(ElementOp op);
// nullptr for dtypes that f32 does not stand in for: only f32 bf16 f16 u8 bool.
RowLoad row_load(DType dtype);
RowStore row_store(DType dtype);

}  // namespace tessera::kernels::cpu
