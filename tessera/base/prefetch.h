// Rows of a table in an order that no prefetcher of the processor foresees are asked for before they are read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

}  // namespace tessera
