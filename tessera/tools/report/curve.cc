#include "tessera/tools/report/curve.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::tools {
namespace {

constexpr size_t kMostSampled = 8192;
constexpr int64_t kSmoothedShare = 50;

void add_bucket(CurveBucket& to, const CurveBucket& from) {
  if (!to.first_non_finite) to.first_non_finite = from.first_non_finite;
  if (from.num_finite > 0) {
    const double share = static_cast<double>(from.num_finite) / static_cast<double>(to.num_finite + from.num_finite);
    // Not a sum, which two large numbers would make infinite.
    to.mean = to.mean * (1 - share) + from.mean * share;
    if (to.num_finite == 0 || from.least.value < to.least.value) to.least = from.least;
    if (to.num_finite == 0 || from.greatest.value > to.greatest.value) to.greatest = from.greatest;
  }
  to.num_finite += from.num_finite;
  to.num_non_finite += from.num_non_finite;
  to.last_step = from.last_step;
  to.last = from.last;
}

CurveBucket bucket_of(int64_t step, double value) {
  const CurvePoint point{step, value};
  if (!std::isfinite(value)) {
    return {.first_step = step, .last_step = step, .num_non_finite = 1, .first_non_finite = step, .last = point};
  }
  return {.first_step = step,
          .last_step = step,
          .num_finite = 1,
          .mean = value,
          .least = point,
          .greatest = point,
          .last = point};
}

}  // namespace

void Curve::add(int64_t step, double value) {
  const CurveBucket added = bucket_of(step, value);
  if (!buckets_.empty() && buckets_.back().num_values() < values_per_bucket_) {
    add_bucket(buckets_.back(), added);
    return;
  }
  if (buckets_.size() == 2 * num_buckets_) {
    for (size_t i = 0; i < num_buckets_; ++i) {
      buckets_[i] = buckets_[2 * i];
      add_bucket(buckets_[i], buckets_[2 * i + 1]);
    }
    buckets_.resize(num_buckets_);
    values_per_bucket_ *= 2;
  }
  buckets_.push_back(added);
}

void Curve::go_back_to(int64_t step) {
  while (!buckets_.empty() && buckets_.back().last_step >= step) buckets_.pop_back();
}

int64_t Curve::num_values() const {
  int64_t count = 0;
  for (const auto& bucket : buckets_) count += bucket.num_values();
  return count;
}

int64_t Curve::num_non_finite() const {
  int64_t count = 0;
  for (const auto& bucket : buckets_) count += bucket.num_non_finite;
  return count;
}

std::optional<int64_t> Curve::first_non_finite() const {
  for (const auto& bucket : buckets_) {
    if (bucket.first_non_finite) return bucket.first_non_finite;
  }
  return std::nullopt;
}

std::optional<CurvePoint> Curve::least() const {
  std::optional<CurvePoint> found;
  for (const auto& bucket : buckets_) {
    if (bucket.num_finite > 0 && (!found || bucket.least.value < found->value)) found = bucket.least;
  }
  return found;
}

std::optional<CurvePoint> Curve::greatest() const {
  std::optional<CurvePoint> found;
  for (const auto& bucket : buckets_) {
    if (bucket.num_finite > 0 && (!found || bucket.greatest.value > found->value)) found = bucket.greatest;
  }
  return found;
}

std::optional<CurvePoint> Curve::last() const {
  if (buckets_.empty()) return std::nullopt;
  return buckets_.back().last;
}

int64_t Curve::smoothing_width() const { return std::max<int64_t>(num_values() / kSmoothedShare, 1); }

std::vector<CurvePoint> Curve::smoothed() const {
  std::vector<CurvePoint> points;
  const auto width = static_cast<double>(smoothing_width());
  double mean = 0;
  double weight = 0;  // of all values so far, which age
  for (const auto& bucket : buckets_) {
    if (bucket.num_finite == 0) continue;
    const double kept = std::exp(-static_cast<double>(bucket.num_finite) / width);
    const double added = 1 - kept;
    const double sum = weight * kept + added;
    mean += (bucket.mean - mean) * (added / sum);
    weight = sum;
    points.push_back({bucket.last_step, mean});
  }
  return points;
}

void MedianSample::add(double value) {
  if (!std::isfinite(value)) return;
  if (num_seen_++ % stride_ != 0) return;
  if (values_.size() == kMostSampled) {
    for (size_t i = 0; i < kMostSampled / 2; ++i) values_[i] = values_[2 * i];
    values_.resize(kMostSampled / 2);
    stride_ *= 2;
  }
  values_.push_back(value);
}

std::optional<double> MedianSample::median() const {
  if (values_.empty()) return std::nullopt;
  auto values = values_;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

}  // namespace tessera::tools
