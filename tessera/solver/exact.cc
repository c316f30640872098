#include "tessera/solver/exact.h"

#include <algorithm>
#include <cmath>

#include "tessera/solver/usage_tree.h"

namespace tessera::solver {
namespace {

size_t as_index(int i) { return static_cast<size_t>(i); }

class Search {
 public:
  Search(const Instance& instance, const Dual& dual, double cost, int64_t max_steps)
      : instance_(instance), dual_(dual), steps_left_(max_steps), usage_(instance.num_points), choices_(), rest_() {
    result_.cost = cost;
    choices_.assign(as_index(instance.num_nodes()), -1);
    // What the nodes from each one on cost at least.
    rest_.assign(as_index(instance.num_nodes()) + 1, 0.0);
    for (int n = instance.num_nodes() - 1; n >= 0; --n) rest_[as_index(n)] = rest_[as_index(n) + 1] + dual.least(n);
    // And what they use at least, in front of the first choice.
    for (int n = 0; n < instance.num_nodes(); ++n) {
      const auto usages = instance.usages_of(n);
      least_usage_.push_back(*std::min_element(usages.begin(), usages.end()));
      add(n, least_usage_.back());
    }
  }

  ExactResult run() {
    result_.complete = descend(0, dual_.bound_constant(), 0);
    if (!found_) result_.cost = kForbidden;
    return std::move(result_);
  }

 private:
  void add(int node, int64_t usage) {
    usage_.add(instance_.first_point[as_index(node)], instance_.last_point[as_index(node)], usage);
  }

  // `moved` is the cost of the nodes before `node` as the dual has moved costs, `true_cost` as they are; false: given
  // up.
  bool descend(int node, double moved, double true_cost) {
    if (node == instance_.num_nodes()) {
      if (true_cost < result_.cost) {
        result_.cost = true_cost;
        result_.choices = choices_;
        found_ = true;
      }
      return true;
    }
    struct Option {
      double moved, cost;
      int choice;
    };
    std::vector<Option> options;
    for (int i = 0; i < instance_.num_choices(node); ++i) {
      Option option{moved + dual_.node_cost(node, i), true_cost + instance_.costs_of(node)[as_index(i)], i};
      for (const auto& incidence : instance_.edges_of(node)) {
        if (incidence.is_first) continue;
        const int other = choices_[as_index(incidence.other)];
        option.moved += dual_.edge_cost(incidence.edge, other, i);
        option.cost += instance_.row(incidence.edge, other)[i];
      }
      if (option.cost != kForbidden) options.push_back(option);
    }
    std::sort(options.begin(), options.end(), [](const Option& a, const Option& b) { return a.moved < b.moved; });
    for (const Option& option : options) {
      // A little below: sums of doubles are not exact.
      const double slack = 1e-9 * (std::abs(result_.cost) == kForbidden ? 0.0 : std::abs(result_.cost));
      if (option.moved + rest_[as_index(node) + 1] - slack >= result_.cost) break;
      if (--steps_left_ < 0) return false;
      const int64_t more = instance_.usages_of(node)[as_index(option.choice)] - least_usage_[as_index(node)];
      add(node, more);
      bool finished = true;
      if (usage_.largest() <= instance_.usage_limit) {
        choices_[as_index(node)] = option.choice;
        finished = descend(node + 1, option.moved, option.cost);
      }
      add(node, -more);
      if (!finished) return false;
    }
    return true;
  }

  const Instance& instance_;
  const Dual& dual_;
  int64_t steps_left_;
  UsageTree usage_;
  std::vector<int> choices_;
  std::vector<double> rest_;
  std::vector<int64_t> least_usage_;
  ExactResult result_;
  bool found_ = false;
};

}  // namespace

ExactResult search_exactly(const Instance& instance, const Dual& dual, double cost, int64_t max_steps) {
  // Each node is one call deep.
  constexpr int kMaxDepth = 5000;
  if (instance.num_nodes() > kMaxDepth) return {};
  return Search(instance, dual, cost, max_steps).run();
}

}  // namespace tessera::solver
