// Rows of a table that are read in an order that no prefetcher of the processor foresees, and copied one by one: they
// are asked for before they are read, and short ones are copied without a call.
#pragma once

#include <emmintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera {

// Returns how many rows ahead of the one that is read are asked for: about 2 KiB, which are on their way meanwhile.
inline int64_t prefetched_rows(int64_t row_bytes) {
  return std::clamp<int64_t>(2048 / std::max<int64_t>(1, row_bytes), 1, 16);
}

// Asks for the lines of a row, of a long one for the first: those that follow are foreseen. Any address is allowed.
inline void prefetch_row(const std::byte* row, int64_t row_bytes) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kAtMost = 2048;
  for (int64_t at = 0; at < std::min(row_bytes, kAtMost); at += kLine) __builtin_prefetch(row + at);
}

// The two rows do not overlap.
inline void copy_row(const std::byte* from, std::byte* to, int64_t row_bytes) {
  constexpr int64_t kVector = 16;
  constexpr int64_t kShort = 256;  // longer ones than it takes to call memcpy
  if (row_bytes % kVector != 0 || row_bytes > kShort) {
    std::memcpy(to, from, static_cast<size_t>(row_bytes));
    return;
  }
  for (int64_t at = 0; at < row_bytes; at += kVector) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
}

}  // namespace tessera
