// How far the numbers of two computations are apart that should agree.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {

// The largest difference of two numbers over the largest magnitude in `expected`; infinite where a found number is not
// finite. Throws InternalError for different counts.
inline double relative_deviation(const std::vector<double>& expected, const std::vector<double>& found) {
  check_equal(expected.size(), found.size(), "compared numbers");
  double scale = 1e-300;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    scale = std::max(scale, std::abs(expected[i]));
    difference = std::max(difference, std::isfinite(found[i]) ? std::abs(expected[i] - found[i]) : HUGE_VAL);
  }
  return difference / scale;
}

}  // namespace tessera
