// A lower bound on the cost of an instance's solutions that rises with the work put into it: costs are moved (Dual),
// usage has prices (Prices), choices that no better solution makes are left out, and nodes are joined to groups
// (Relaxation).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/solver/bounds/dual.h"
#include "tessera/solver/bounds/relaxation.h"
#include "tessera/solver/bounds/usage_prices.h"
#include "tessera/solver/problem/instance.h"

namespace tessera::solver {

class Bound {
 public:
  // The instance and the deadline must outlive it.
  explicit Bound(const Instance& instance, const Deadline& deadline = kNoDeadline);

  // Looks at about `work` costs, fewer where the deadline is over. `known` is the cost of the best solution that is
  // known, kForbidden where none is: what costs as much is not wanted.
  void raise(double known, int64_t work);
  // A number of passes with these prices instead.
  void price(const std::vector<double>& prices, int passes);

  // No solution costs less than this or than a `known` that was given.
  double value() const { return value_; }
  // The prices that gave the highest bound.
  const std::vector<double>& prices() const { return best_prices_; }
  // The instance's, as the last pass suggests them.
  std::vector<int> choices() const { return relaxation_.of_instance(dual_->choices()); }

  const Relaxation& relaxation() const { return relaxation_; }
  const Dual& dual() const { return *dual_; }

 private:
  void set_prices(std::vector<double> values);
  void pass(double known);
  void shrink(double known, bool joins);

  const Instance& instance_;
  const Deadline& deadline_;
  Relaxation relaxation_;
  std::unique_ptr<Dual> dual_;
  Prices prices_;
  std::vector<double> best_prices_;
  double value_ = -kForbidden;
  int passes_ = 0;
  int passes_before_ = 0;  // when it was last looked whether the bound stands still
  double value_before_ = -kForbidden;
};

}  // namespace tessera::solver
