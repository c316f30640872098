// The inner product loop that matmul and the convolutions share. The second operand is first copied into panels: kWidth
// neighbouring columns, converted to the accumulator's type, one row of kWidth after the other; columns beyond the last
// are zeros. Each sum is formed by one thread, in the order of the rows: results do not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/tensor/half.h"

namespace tessera::kernels::reference {

// Products of floating numbers are added in double and rounded once; integers wrap around, as NumPy's do.
template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

inline constexpr int kMaxWidth = 32;
inline constexpr int kMaxRows = 4;

inline int64_t num_blocks(int64_t n, int64_t width) { return (n + width - 1) / width; }
// Few columns get a narrow panel: the padding is computed too.
inline int panel_width(int64_t columns) { return columns > 8 ? kMaxWidth : 8; }
inline int64_t panels_bytes(int64_t depth, int64_t columns) {
  const int width = panel_width(columns);
  return num_blocks(columns, width) * width * depth * static_cast<int64_t>(sizeof(double));
}

// sums[r][j] += a_r[i] * panel[i][j] for i = 0, 1, ... depth - 1, with a_r[i] = a[row_offsets[r] + i * stride].
template <int Width, int Rows, typename T, typename S>
void multiply_rows(const T* a, const int64_t* row_offsets, int64_t stride, int64_t depth, const S* panel, S* sums) {
  // Four columns of four rows are what the registers of the oldest x86-64 hold.
  constexpr int kColumns = 4;
  for (int first = 0; first < Width; first += kColumns) {
    S part[Rows][kColumns];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) part[r][j] = sums[r * Width + first + j];
    }
    const S* b = panel + first;
    for (int64_t i = 0; i < depth; ++i, b += Width) {
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const auto value = static_cast<S>(a[row_offsets[r] + i * stride]);
#pragma GCC unroll 4
        for (int j = 0; j < kColumns; ++j) part[r][j] += value * b[j];
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) sums[r * Width + first + j] = part[r][j];
    }
  }
}

template <int Width, typename T, typename S>
void multiply_panel(const T* a, const int64_t* row_offsets, int num_rows, int64_t stride, int64_t depth, const S* panel,
                    S* sums) {
  switch (num_rows) {
    case 1: return multiply_rows<Width, 1>(a, row_offsets, stride, depth, panel, sums);
    case 2: return multiply_rows<Width, 2>(a, row_offsets, stride, depth, panel, sums);
    case 3: return multiply_rows<Width, 3>(a, row_offsets, stride, depth, panel, sums);
    default: return multiply_rows<Width, 4>(a, row_offsets, stride, depth, panel, sums);
  }
}

// Calls f with the panel width as a constant.
template <typename F>
void dispatch_width(int width, F&& f) {
  if (width == kMaxWidth) {
    f(std::integral_constant<int, kMaxWidth>());
  } else {
    f(std::integral_constant<int, 8>());
  }
}

}  // namespace tessera::kernels::reference
