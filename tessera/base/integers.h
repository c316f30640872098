// Small helpers for whole numbers: ranks, dims and nodes are int, containers want size_t.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// `i` is not negative.
constexpr size_t as_index(int i) { return static_cast<size_t>(i); }
// Rounds up; `a` is not negative, `b` is positive.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline bool contains(std::span<const int> numbers, int number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

}  // namespace tessera
