#include "tessera/solver/exact.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/integers.h"
#include "tessera/solver/usage_tree.h"

namespace tessera::solver {
namespace {

class Search {
 public:
  Search(const Instance& instance, const Relaxation& relaxation, const Dual& dual, double cost, int64_t max_steps)
      : instance_(instance),
        relaxation_(relaxation),
        graph_(*relaxation.graph),
        dual_(dual),
        steps_left_(max_steps),
        usage_(instance.num_points),
        choices_(as_index(graph_.num_nodes()), -1),
        rest_(choices_.size() + 1, 0.0) {
    result_.cost = cost;
    // What the groups from each one on cost at least.
    for (int n = graph_.num_nodes() - 1; n >= 0; --n) rest_[as_index(n)] = rest_[as_index(n) + 1] + dual.least(n);
    // And what each node uses at least, in front of the first choice.
    for (int n = 0; n < instance.num_nodes(); ++n) {
      const auto usages = instance.usages_of(n);
      least_usage_.push_back(*std::min_element(usages.begin(), usages.end()));
      usage_.add(instance.first_point[as_index(n)], instance.last_point[as_index(n)], least_usage_.back());
    }
  }

  ExactResult run() {
    result_.complete = descend(0, dual_.constant(), 0);
    if (!found_) result_.cost = kForbidden;
    return std::move(result_);
  }

 private:
  // Adds what the members of a group use with a choice beyond the least, so many times.
  void add(int group, int choice, int64_t times) {
    const auto& members = relaxation_.members[as_index(group)];
    const auto first = as_index(choice) * members.size();
    for (size_t m = 0; m < members.size(); ++m) {
      const auto node = as_index(members[m]);
      const auto taken = as_index(relaxation_.choices[as_index(group)][first + m]);
      usage_.add(instance_.first_point[node], instance_.last_point[node],
                 times * (instance_.usages_of(members[m])[taken] - least_usage_[node]));
    }
  }

  // `moved` is the cost of the nodes before `node` as the dual has moved costs, `true_cost` as they are; false: given
  // up.
  bool descend(int node, double moved, double true_cost) {
    if (node == graph_.num_nodes()) {
      if (true_cost < result_.cost) {
        result_.cost = true_cost;
        result_.choices = relaxation_.of_instance(choices_);
        found_ = true;
      }
      return true;
    }
    struct Option {
      double moved, cost;
      int choice;
    };
    std::vector<Option> options;
    for (int i = 0; i < graph_.num_choices(node); ++i) {
      Option option{moved + dual_.node_cost(node, i), true_cost + graph_.costs_of(node)[as_index(i)], i};
      for (const auto& incidence : graph_.edges_of(node)) {
        if (incidence.is_first) continue;
        const int other = choices_[as_index(incidence.other)];
        option.moved += dual_.edge_cost(incidence.edge, other, i);
        option.cost += graph_.row(incidence.edge, other)[i];
      }
      if (option.cost != kForbidden) options.push_back(option);
    }
    std::sort(options.begin(), options.end(), [](const Option& a, const Option& b) { return a.moved < b.moved; });
    for (const Option& option : options) {
      // A little below: sums of doubles are not exact.
      const double slack = 1e-9 * (std::abs(result_.cost) == kForbidden ? 0.0 : std::abs(result_.cost));
      if (option.moved + rest_[as_index(node) + 1] - slack >= result_.cost) break;
      if (--steps_left_ < 0) return false;
      add(node, option.choice, 1);
      bool finished = true;
      if (usage_.largest() <= instance_.usage_limit) {
        choices_[as_index(node)] = option.choice;
        finished = descend(node + 1, option.moved, option.cost);
      }
      add(node, option.choice, -1);
      if (!finished) return false;
    }
    return true;
  }

  const Instance& instance_;
  const Relaxation& relaxation_;
  const CostGraph& graph_;
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

ExactResult search_exactly(const Instance& instance, const Relaxation& relaxation, const Dual& dual, double cost,
                           int64_t max_steps) {
  // Each group is one call deep.
  constexpr int kMaxDepth = 5000;
  if (relaxation.graph->num_nodes() > kMaxDepth) return {};
  return Search(instance, relaxation, dual, cost, max_steps).run();
}

}  // namespace tessera::solver
