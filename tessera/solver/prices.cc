#include "tessera/solver/prices.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::solver {
namespace {

// A new direction's share in the mean that prices follow.
constexpr double kShare = 0.1;
// Calls without a better bound until the step is made shorter, and begins again at the best prices; less where much of
// the bound is lost.
constexpr int kPatience = 20;
constexpr int kShortPatience = 4;
constexpr double kLoss = 0.01;
constexpr double kShorter = 0.7;
constexpr double kLonger = 1.05;

size_t as_index(int i) { return static_cast<size_t>(i); }

}  // namespace

Prices::Prices(const Instance& instance)
    : instance_(instance),
      values_(as_index(instance.num_points), 0.0),
      best_values_(values_),
      sums_(values_.size() + 1, 0.0),
      mean_excess_(values_.size(), 0.0) {}

void Prices::set(std::vector<double> values) {
  values_ = std::move(values);
  for (size_t p = 0; p < values_.size(); ++p) sums_[p + 1] = sums_[p] + values_[p];
}

double Prices::of(int node) const {
  return sums_[as_index(instance_.last_point[as_index(node)])] - sums_[as_index(instance_.first_point[as_index(node)])];
}

double Prices::of_limit() const {
  return values_.empty() ? 0 : static_cast<double>(instance_.usage_limit) * sums_.back();
}

std::vector<double> Prices::next(const std::vector<int>& choices, double bound, double best) {
  if (values_.empty()) return {};
  std::vector<double> excess(values_.size() + 1, 0.0);
  for (int n = 0; n < instance_.num_nodes(); ++n) {
    if (!instance_.is_limited(n)) continue;
    const auto used = static_cast<double>(instance_.usages_of(n)[as_index(choices[as_index(n)])]);
    excess[as_index(instance_.first_point[as_index(n)])] += used;
    excess[as_index(instance_.last_point[as_index(n)])] -= used;
  }
  double sum = 0;
  double norm = 0;
  double norm_now = 0;
  for (size_t p = 0; p < values_.size(); ++p) {
    sum += excess[p];
    const double now = sum - static_cast<double>(instance_.usage_limit);
    mean_excess_[p] += kShare * (now - mean_excess_[p]);
    if (values_[p] > 0 || mean_excess_[p] > 0) norm += mean_excess_[p] * mean_excess_[p];
    if (values_[p] > 0 || now > 0) norm_now += now * now;
  }
  if (bound > best_bound_ + 1e-9 * std::abs(best_bound_)) {
    best_bound_ = bound;
    best_values_ = values_;
    calls_without_gain_ = 0;
    step_ = std::min(1.0, kLonger * step_);
  } else if (++calls_without_gain_ >=
             (bound < best_bound_ - kLoss * std::abs(best_bound_) ? kShortPatience : kPatience)) {
    step_ *= kShorter;
    calls_without_gain_ = 0;
    return best_values_;
  }
  std::vector<double> values = values_;
  if (norm == 0) return values;
  // Polyak's step: how far the bound may still rise, by the square of the direction; where much is left, a part of it.
  const double usual = 0.05 * std::abs(bound);
  const double room = std::clamp(best - bound, 0.01 * usual, usual);
  double longest = 0;
  for (const double excess_at : mean_excess_) longest = std::max(longest, std::abs(excess_at));
  // No further than prices that make the limit worth the whole bound: what is added to costs stays exact.
  const double most = (std::abs(bound) + 1) / (longest * (static_cast<double>(instance_.usage_limit) + 1));
  // Where the mean is short as usage goes up and down, steps are no longer for it.
  const double length = std::min(step_ * room / std::max(norm, norm_now), most);
  for (size_t p = 0; p < values.size(); ++p) values[p] = std::max(0.0, values[p] + length * mean_excess_[p]);
  return values;
}

}  // namespace tessera::solver
