// Indices in ascending order of the rows that they name, so that each row finds what belongs to it side by side.
#pragma once

#include <string>

#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/kernels/cuda/core/phase_parts.h"
#include "tessera/tensor/tensor.h"

namespace tessera::cuda {

// Rows are numbered by int; so are indices.
inline constexpr int64_t kMostSortedRows = int64_t{1} << 30;

// The scratch memory of so many sorted indices: their rows, then the positions at which they stood.
int64_t bytes_of_sorted_rows(int64_t count);
// Statements that declare both: `sorted` and `positions`.
std::string sorted_rows_text(int64_t count, bool is_const = true);
// The part that finds the order, that of their positions among equal ones. Indices of no row become row -1. `operand`:
// how the text names the indices.
PhasePart sort_part(const Gpu& gpu, const std::string& operand, const TensorView& indices, int64_t num_rows);

}  // namespace tessera::cuda
