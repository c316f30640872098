// Histogram: how the elements of a value are distributed, in the buckets that TensorBoard expects.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::train {

// The finite elements count. Buckets lie side by side: each reaches from the limit before it, which is out, to its own,
// which is in. Those that are empty at both ends are left out, but one at the low end, which says where the next
// begins.
struct Histogram {
  double min = 0;
  double max = 0;
  double num = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits;  // rising by a tenth of their size from 1e-12 on, and the same below 0
  std::vector<double> counts;
  int64_t num_non_finite = 0;
};

// Throws InvalidArgument for a dtype that is not of numbers.
Histogram histogram_of(const Tensor& value);

}  // namespace tessera::train
