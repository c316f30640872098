// Prices of usage that stand for the limit: what is in use at a time point costs its price, what the limit allows is
// paid back. Whatever the prices, where none is negative no solution costs more by them (Lagrangian relaxation). They
// are found by the volume algorithm (Barahona and Anbil, Mathematical Programming 2000): a mean of the directions in
// which the limit is missed leads away from the best prices, and these move only where the bound rises.
#pragma once

#include <vector>

#include "tessera/solver/problem/instance.h"

namespace tessera::solver {

class Prices {
 public:
  explicit Prices(const Instance& instance);

  // Per unit of usage, at each time point, >= 0.
  const std::vector<double>& values() const { return values_; }
  void set(std::vector<double> values);
  // What a unit of usage costs over the node's life.
  double of(int node) const;
  // What all costs that the limit allows.
  double of_limit() const;

  // Prices near the best ones, which are those with the highest bound that this was told of: moved along the usage of
  // `choices`, averaged over the last calls, that is above or below the limit. `bound` is what the prices as they are
  // say, `best` the cost of the best solution that is known, kForbidden where none is.
  std::vector<double> next(const std::vector<int>& choices, double bound, double best);
  // Whether steps have become short: little is to be gained any more.
  bool is_settled() const;
  // Steps are long again: the bound has become better at all prices.
  void restart();

 private:
  bool add_direction(const std::vector<int>& choices);

  const Instance& instance_;
  std::vector<double> values_;
  std::vector<double> sums_;         // the sum of the prices before each point
  std::vector<double> center_;       // the best prices
  double best_bound_ = -kForbidden;  // with them
  std::vector<double> recent_;       // the best since the center is the center
  double recent_bound_ = -kForbidden;
  std::vector<double> mean_excess_;  // the mean of usage over the limit, at each point
  double step_;
  int calls_without_gain_ = 0;
  bool is_first_ = true;
};

// Makes usage dearer at the points where `choices` break the limit, and cheaper where they leave much of it: after some
// calls, each with what was chosen at the prices of the last, the limit holds nearly everywhere. Says whether it was
// broken.
bool raise_prices(const Instance& instance, const std::vector<int>& choices, std::vector<double>& prices);

}  // namespace tessera::solver
