// Prices of usage that stand for the limit: what is in use at a time point costs its price, what the limit allows is
// paid back. For any prices that are not negative no solution costs more by it (Lagrangian relaxation).
#pragma once

#include <vector>

#include "tessera/solver/instance.h"

namespace tessera::solver {

class Prices {
 public:
  explicit Prices(const Instance& instance);

  // Per unit of usage, at each time point, >= 0.
  const std::vector<double>& values() const { return values_; }
  void set(std::vector<double> values);
  // Of a unit of usage over the node's life.
  double of(int node) const;
  // Of all that the limit allows.
  double of_limit() const;

  // Prices moved along the usage of `choices`, averaged over the last calls, that is above or below the limit.
  // `bound` is what these prices say, `best` the cost of the best solution that is known, kForbidden where none is.
  std::vector<double> next(const std::vector<int>& choices, double bound, double best);

  // Steps are long again: the bound has become better at all prices.
  void restart() { step_ = 1; }
  // Those with the highest bound that next() was told of.
  const std::vector<double>& best() const { return best_values_; }

 private:
  const Instance& instance_;
  std::vector<double> values_;
  std::vector<double> best_values_;  // those of best_bound_
  std::vector<double> sums_;         // of the prices before each point
  std::vector<double> mean_excess_;  // of usage over the limit, at each point
  double best_bound_ = -kForbidden;
  double step_ = 1;
  int calls_without_gain_ = 0;
};

}  // namespace tessera::solver
