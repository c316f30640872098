// A lower bound by Lagrangian duality: costs are moved between nodes and edges so that what is minimal at each of them
// alone adds up to as much as possible, and a price on usage at each time point stands for the limit.
//
// Moving costs is block-coordinate ascent along the order of nodes (SRMP: Kolmogorov, "A new look at reweighted message
// passing", PAMI 2015; on pairs of nodes it has the fixed points of TRW-S). Prices follow projected subgradients.
#pragma once

#include <vector>

#include "tessera/solver/instance.h"

namespace tessera::solver {

class Dual {
 public:
  explicit Dual(const Instance& instance);

  // One pass over the nodes forth and back. The forward pass also chooses, node by node, what is best beside the nodes
  // before it and the bound of those behind it: choices().
  void pass();
  // Of the last pass; no solution costs less.
  double bound() const { return bound_; }
  const std::vector<int>& choices() const { return choices_; }
  // Per unit of usage, at each time point, >= 0.
  const std::vector<double>& prices() const { return prices_; }
  // Moves the prices along the usage of choices(), averaged over the last passes, that is above or below the limit.
  // `best` is the cost of the best solution that is known, kForbidden where none is.
  void follow_usage(double best);
  // Takes prices as they are given. The bound is that of the next pass.
  void set_prices(std::vector<double> prices);

  // With costs moved as they are now, the cost of a choice or pair of choices, such that bound_constant() + these over
  // all nodes and edges is the cost of a solution plus the prices of what it uses less the prices of the limit, and
  // each is at least what least() says of its node; edges are at least zero.
  double node_cost(int node, int choice) const;
  double edge_cost(int edge, int i, int j) const;
  double least(int node) const;
  double bound_constant() const { return -limit_price_; }

 private:
  void collect(const Instance::Incidence& incidence, int node);
  void distribute(int node, bool forward);
  void choose(int node);

  const Instance& instance_;
  std::vector<double> node_;        // of each choice: what is left at the node
  std::vector<size_t> first_at_u_;  // of each edge
  std::vector<size_t> first_at_v_;
  std::vector<double> moved_;         // onto each edge, by the choices of u, then by those of v
  std::vector<int> before_, behind_;  // neighbours of each node in the order
  std::vector<double> prices_;
  std::vector<double> mean_excess_;  // of usage over the limit, at each point
  double limit_price_ = 0;
  double bound_ = -kForbidden;
  double best_bound_ = -kForbidden;
  double step_ = 1;
  int passes_without_gain_ = 0;
  std::vector<int> choices_;
  std::vector<double> local_;  // work space of collect and choose
};

}  // namespace tessera::solver
