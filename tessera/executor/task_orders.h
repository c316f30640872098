// In which order tasks must run because of the memory that they touch: two have an order where one of them writes what
// the other reads or writes.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::executor {

struct ByteRange {
  uintptr_t begin = 0;
  size_t bytes = 0;
};
// The range goes from the first to the last element of a view.
ByteRange range_of(const TensorView& view);

struct Touched {
  std::vector<ByteRange> reads;
  std::vector<ByteRange> writes;
};

// For each task the earlier ones that it must follow; of those, none that must come before another of them.
std::vector<std::vector<int>> orders_of(const std::vector<Touched>& tasks);

}  // namespace tessera::executor
