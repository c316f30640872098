// Curve: what a number of a log did over the steps, in bounded memory however many steps there are. Of steps that share
// a bucket it keeps the mean, the least and the greatest with the steps that had them, and the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::tools {

// A CurvePoint is a value at a step.
struct CurvePoint {
  int64_t step = 0;
  double value = 0;
  bool operator==(const CurvePoint&) const = default;
};

// A CurveBucket is what is kept of some neighbouring steps. Where none of them has a finite value, the rest is empty.
struct CurveBucket {
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t num_finite = 0;
  int64_t num_non_finite = 0;
  std::optional<int64_t> first_non_finite = {};  // the step
  double mean = 0;
  CurvePoint least = {};
  CurvePoint greatest = {};
  CurvePoint last = {};  // also one that is not finite
  int64_t num_values() const { return num_finite + num_non_finite; }
};

class Curve {
 public:
  Curve() = default;
  // It keeps at most twice so many buckets; up to then each step has a bucket of its own.
  explicit Curve(size_t num_buckets) : num_buckets_(num_buckets) {}

  void add(int64_t step, double value);
  // Forgets the values from this step on, because they are made again. Where a bucket has steps before it, too, it
  // forgets these with them.
  void go_back_to(int64_t step);

  bool empty() const { return buckets_.empty(); }
  const std::vector<CurveBucket>& buckets() const { return buckets_; }
  int64_t num_values() const;
  int64_t num_non_finite() const;
  std::optional<int64_t> first_non_finite() const;
  // Absent where no value is finite.
  std::optional<CurvePoint> least() const;
  std::optional<CurvePoint> greatest() const;
  // An empty curve has none.
  std::optional<CurvePoint> last() const;
  // At the last step of each bucket the exponential mean of the values so far, of which a 50th of all count for most;
  // without those that are not finite. The begin is not pulled to zero.
  std::vector<CurvePoint> smoothed() const;
  // Of how many values the mean is, about.
  int64_t smoothing_width() const;

 private:
  size_t num_buckets_ = 500;
  int64_t values_per_bucket_ = 1;
  std::vector<CurveBucket> buckets_;
};

// MedianSample: the median of any number of values, in bounded memory: exact up to 8192 of them, then that of every
// second, fourth and so on.
class MedianSample {
 public:
  // A value that is not finite counts for nothing.
  void add(double value);
  // Absent where there was none.
  std::optional<double> median() const;

 private:
  std::vector<double> values_;
  int64_t stride_ = 1;
  int64_t num_seen_ = 0;
};

}  // namespace tessera::tools
