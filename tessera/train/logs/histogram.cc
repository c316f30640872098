#include "tessera/train/logs/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::train {
namespace {

// The limits that TensorFlow has used from the beginning, so that histograms of all programs lie on one another.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(std::numeric_limits<double>::max());
    std::vector<double> all;
    for (auto at = positive.rbegin(); at != positive.rend(); ++at) all.push_back(-*at);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return limits;
}

}  // namespace

Histogram histogram_of(const Tensor& value) {
  const auto& limits = bucket_limits();
  const Tensor numbers = value.dtype() == DType::kF64 ? value : value.cast(DType::kF64);
  std::vector<double> counts(limits.size());
  Histogram made;
  made.min = std::numeric_limits<double>::infinity();
  made.max = -made.min;
  for (const double x : numbers.values<double>()) {
    if (!std::isfinite(x)) {
      ++made.num_non_finite;
      continue;
    }
    made.min = std::min(made.min, x);
    made.max = std::max(made.max, x);
    made.num += 1;
    made.sum += x;
    made.sum_squares += x * x;
    counts[static_cast<size_t>(std::ranges::lower_bound(limits, x) - limits.begin())] += 1;
  }
  if (made.num == 0) {
    made.min = made.max = 0;
    return made;
  }
  const auto is_used = [](double count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, is_used) - counts.begin();
  const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), is_used);  // behind it
  const auto begin = std::max<int64_t>(first - 1, 0);
  made.limits.assign(limits.begin() + begin, limits.begin() + last);
  made.counts.assign(counts.begin() + begin, counts.begin() + last);
  return made;
}

}  // namespace tessera::train
