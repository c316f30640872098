// Solutions made better: the choices of a tree of neighbouring nodes are chosen anew, the best for what surrounds it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/base/random.h"
#include "tessera/solver/problem/instance.h"
#include "tessera/solver/usage_tree.h"

namespace tessera::solver {

class LocalSearch {
 public:
  // Draws are a function of `seed` alone. The instance and the deadline must outlive the search.
  LocalSearch(const Instance& instance, uint64_t seed, const Deadline& deadline = kNoDeadline);

  // Begins at `choices`, which need not be feasible. Where they are not, all nodes are chosen anew, tree after tree,
  // while usage (`prices`: at each point) becomes dearer where the limit is broken; what is then left is mended by the
  // cheapest changes for what they save.
  void begin(const std::vector<int>& choices, const std::vector<double>& prices);
  // Random trees until about `work` costs have been looked at. Trees are chosen anew with usage priced at a random
  // multiple of `prices`; what costs no more and breaks the limit no further is kept.
  void improve(const std::vector<double>& prices, int64_t work);
  // Goes back to best().
  void restart();

  bool has_solution() const { return best_cost_ != kForbidden; }
  double best_cost() const { return best_cost_; }
  const std::vector<int>& best() const { return best_; }

 private:
  // A node of the tree that is chosen anew.
  struct Member {
    int node;
    int parent;                   // its place among the members, -1 for the root
    Instance::Incidence up = {};  // the edge to the parent, as this node sees it
    size_t first = 0;             // where its choices begin in table_
  };
  struct Change {
    int node;
    int choice;
  };
  struct Outcome {
    double more;     // how much cost it adds
    int64_t excess;  // how far the largest usage is over the limit
    int point;       // where that usage is
    bool kept;
  };
  // Forbidden pairs count apart from what can be added up.
  struct Sum {
    double cost = 0;
    int forbidden = 0;
    void add(double c) {
      if (c == kForbidden) {
        ++forbidden;
      } else {
        cost += c;
      }
    }
  };

  double uniform() { return random_open_uniform({.seed = seed_}, draws_++); }
  int below(int n) { return static_cast<int>(random_below({.seed = seed_}, draws_++, n)); }

  double node_delta(int node, int choice) const;
  void set(int node, int choice);
  void add_up();
  bool is_forbidden(int edge) const;
  void settle(std::vector<double> prices);
  void sum_prices(const std::vector<double>& prices, double scale);
  void sweep(int64_t& work);
  void mend_forbidden(int64_t& work, int64_t share);
  void repair(const std::vector<double>& prices);
  void keep_best();
  void grow(int root, int64_t size, int sweep = -1);
  double price_of(int node) const;
  std::vector<Change> choose_tree(int64_t& work);
  Sum sum_around(const std::vector<Change>& changes) const;
  int root_for(int point);
  Outcome try_changes(const std::vector<Change>& changes);
  // While a solution is made, a forbidden pair costs as much as all else together.
  double soft(double cost) const { return std::min(cost, dear_); }
  bool is_within_limit() const { return usage_.largest() <= instance_.usage_limit; }

  const Instance& instance_;
  uint64_t seed_;
  const Deadline& deadline_;
  uint64_t draws_ = 0;
  std::vector<int> choices_;
  Sum sum_;  // the sum of choices_
  double dear_ = 1;
  UsageTree usage_;
  std::vector<int> best_;
  double best_cost_ = kForbidden;

  std::vector<double> price_sums_;  // the sum of the prices before each point
  std::vector<Member> members_;
  std::vector<int> place_;          // the place of each node among the members; -1: it is none
  std::vector<int> neighbours_in_;  // how many members are beside each node
  std::vector<double> table_;       // the least cost of the subtree, for each member and choice
  std::vector<int> taken_;          // the best choice, for each member and choice of its parent
  std::vector<size_t> first_taken_;
  std::vector<bool> changes_;  // whether each node changes, while a change is tried
  std::vector<int> sweep_of_;  // the last sweep that chose each node
  int num_sweeps_ = 0;
  // Usage at this point costs more than prices say; -1: at none.
  int dear_point_ = -1;
  double dear_price_ = 0;
};

}  // namespace tessera::solver
