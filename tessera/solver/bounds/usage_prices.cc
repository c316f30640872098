#include "tessera/solver/bounds/usage_prices.h"
#include "tessera/base/integers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tessera::solver {
namespace {

// The volume algorithm's constants (Barahona and Anbil, "The volume algorithm", Mathematical Programming 2000).
constexpr double kShare = 0.1;  // of a new direction in the mean that prices follow
constexpr int kPatience = 20;   // calls without a better bound until the step is made shorter
constexpr double kShorter = 0.66;
constexpr double kLonger = 1.1;
constexpr double kFirstStep = 0.1;
constexpr double kNextStep = 0.05;  // after restart()
constexpr double kSettledStep = 0.025;
constexpr double kLongestStep = 1;
constexpr double kNearly = 0.01;  // of what the bound may still rise

constexpr double kLeastPrice = 0.01;  // of the mean: what a price rises from

std::vector<double> usage_at_points(const Instance& instance, const std::vector<int>& choices) {
  std::vector<double> usage(as_index(instance.num_points) + 1, 0.0);  // first what changes from point to point
  for (int n = 0; n < instance.num_nodes(); ++n) {
    if (!instance.is_limited(n)) continue;
    const auto used = static_cast<double>(instance.usages_of(n)[as_index(choices[as_index(n)])]);
    usage[as_index(instance.first_point[as_index(n)])] += used;
    usage[as_index(instance.last_point[as_index(n)])] -= used;
  }
  std::partial_sum(usage.begin(), usage.end(), usage.begin());
  usage.pop_back();
  return usage;
}

}  // namespace

Prices::Prices(const Instance& instance)
    : instance_(instance),
      values_(as_index(instance.num_points), 0.0),
      sums_(values_.size() + 1, 0.0),
      center_(values_),
      recent_(values_),
      mean_excess_(values_.size(), 0.0),
      step_(kFirstStep) {}

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

// Makes the usage of `choices` above or below the limit part of the mean. Says whether it leads on where the mean did.
bool Prices::add_direction(const std::vector<int>& choices) {
  const std::vector<double> usage = usage_at_points(instance_, choices);
  double agreement = 0;
  for (size_t p = 0; p < values_.size(); ++p) {
    const double excess = usage[p] - static_cast<double>(instance_.usage_limit);
    agreement += excess * mean_excess_[p];
    mean_excess_[p] += (is_first_ ? 1 : kShare) * (excess - mean_excess_[p]);
  }
  is_first_ = false;
  return agreement > 0;
}

std::vector<double> Prices::next(const std::vector<int>& choices, double bound, double best) {
  if (values_.empty()) return {};
  const bool leads_on = add_direction(choices);
  // How far the bound may still rise; where much is left, a part of it.
  const double usual = 0.05 * std::max(std::abs(bound), best == kForbidden ? 0.0 : std::abs(best));
  const double room = std::clamp(best - std::max(bound, best_bound_), 0.001 * usual, usual);
  if (bound > best_bound_) {
    if (leads_on) step_ = std::min(kLongestStep, kLonger * step_);
    best_bound_ = bound;
    center_ = values_;
    calls_without_gain_ = 0;
    recent_bound_ = -kForbidden;
  } else {
    if (bound > recent_bound_) {
      recent_bound_ = bound;
      recent_ = values_;
    }
    if (++calls_without_gain_ >= kPatience) {
      step_ *= kShorter;
      calls_without_gain_ = 0;
      // The bound also depends on how costs were moved before: that of the center may be just out of reach by now.
      if (recent_bound_ > best_bound_ - kNearly * room) {
        center_ = recent_;
        best_bound_ = recent_bound_;
      }
      recent_bound_ = -kForbidden;
    }
  }
  double norm = 0;
  double longest = 0;
  for (size_t p = 0; p < values_.size(); ++p) {
    if (center_[p] == 0 && mean_excess_[p] <= 0) continue;
    norm += mean_excess_[p] * mean_excess_[p];
    longest = std::max(longest, std::abs(mean_excess_[p]));
  }
  if (norm == 0) return center_;
  // No further than prices that make the limit worth the whole bound: what is added to costs stays exact.
  const double most = (std::abs(bound) + 1) / (longest * (static_cast<double>(instance_.usage_limit) + 1));
  // Polyak's step: what the bound may still rise, by the square of the direction.
  const double length = std::min(step_ * room / norm, most);
  std::vector<double> values = center_;
  for (size_t p = 0; p < values.size(); ++p) values[p] = std::max(0.0, values[p] + length * mean_excess_[p]);
  return values;
}

bool raise_prices(const Instance& instance, const std::vector<int>& choices, std::vector<double>& prices) {
  const std::vector<double> usage = usage_at_points(instance, choices);
  double total = 0;
  for (const double price : prices) total += price;
  if (total == 0) {
    // What all cost, spread over what all use.
    double costs = 1;
    double used = 1;
    for (int n = 0; n < instance.num_nodes(); ++n) {
      costs += std::abs(instance.costs_of(n)[as_index(choices[as_index(n)])]);
    }
    for (const double at_point : usage) used += at_point;
    total = static_cast<double>(prices.size()) * costs / used;
  }
  const double least = kLeastPrice * total / static_cast<double>(prices.size() + 1);
  bool is_broken = false;
  for (size_t p = 0; p < prices.size(); ++p) {
    const double share = usage[p] / std::max(1.0, static_cast<double>(instance.usage_limit));
    if (share > 1) {
      prices[p] = std::max(prices[p], least) * (share > 1.5 ? 4 : share > 1.1 ? 2 : 1.3);
      is_broken = true;
    } else if (share < 0.95) {
      prices[p] *= 0.8;
    }
  }
  return is_broken;
}

bool Prices::is_settled() const { return values_.empty() || step_ < kSettledStep; }

void Prices::restart() {
  step_ = std::max(step_, kNextStep);
  best_bound_ = -kForbidden;
}

}  // namespace tessera::solver
