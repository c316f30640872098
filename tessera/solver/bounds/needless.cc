#include "tessera/solver/bounds/needless.h"
#include "tessera/base/integers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace tessera::solver {
namespace {

// Marks choices that are forbidden or stand beside no allowed choice of a neighbour that is not marked.
void mark_forbidden(const CostGraph& graph, std::vector<bool>& is_out) {
  for (size_t i = 0; i < graph.cost.size(); ++i) {
    if (graph.cost[i] == kForbidden) is_out[i] = true;
  }
  std::vector<int> edges;
  for (int e = 0; e < graph.num_edges(); ++e) {
    const auto e_index = as_index(e);
    const double* begin = &graph.by_u[graph.first_pair[e_index]];
    const double* end = begin + static_cast<size_t>(graph.num_choices(graph.u[e_index])) *
                                    static_cast<size_t>(graph.num_choices(graph.v[e_index]));
    if (std::find(begin, end, kForbidden) != end) edges.push_back(e);
  }
  const auto look = [&](const CostGraph::Incidence& incidence, int node) {
    const auto own = as_index(graph.first_choice[as_index(node)]);
    const auto other = as_index(graph.first_choice[as_index(incidence.other)]);
    bool any = false;
    for (int i = 0; i < graph.num_choices(node); ++i) {
      if (is_out[own + as_index(i)]) continue;
      const double* costs = graph.beside(incidence, i);
      bool allowed = false;
      for (int j = 0; j < graph.num_choices(incidence.other) && !allowed; ++j) {
        allowed = costs[j] != kForbidden && !is_out[other + as_index(j)];
      }
      if (!allowed) any = is_out[own + as_index(i)] = true;
    }
    return any;
  };
  std::vector<bool> is_new(as_index(graph.num_nodes()), true);
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<bool> next(is_new.size(), false);
    for (const int e : edges) {
      const int u = graph.u[as_index(e)];
      const int v = graph.v[as_index(e)];
      if ((is_new[as_index(v)] || next[as_index(v)]) && look({e, v, true}, u)) changed = next[as_index(u)] = true;
      if ((is_new[as_index(u)] || next[as_index(u)]) && look({e, u, false}, v)) changed = next[as_index(v)] = true;
    }
    is_new = std::move(next);
  }
}

// What the members of a group use with one of its choices, beside another.
class GroupUsage {
 public:
  GroupUsage(const Instance& instance, const Relaxation& relaxation, size_t group)
      : instance_(instance), members_(relaxation.members[group]), choices_(relaxation.choices[group]) {
    for (const int member : members_) {
      if (!instance.is_limited(member)) continue;
      ends_.push_back(instance.first_point[as_index(member)]);
      ends_.push_back(instance.last_point[as_index(member)]);
    }
    std::sort(ends_.begin(), ends_.end());
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
  }
  // Between these points, each with the next, the group uses the same.
  const std::vector<int>& ends() const { return ends_; }
  // Of one choice, from each of ends() on.
  std::vector<int64_t> of(size_t choice) const {
    std::vector<int64_t> usage(ends_.size(), 0);
    for (size_t m = 0; m < members_.size(); ++m) {
      const int member = members_[m];
      if (!instance_.is_limited(member)) continue;
      const int64_t used = instance_.usages_of(member)[as_index(choices_[choice * members_.size() + m])];
      const int last = instance_.last_point[as_index(member)];
      auto at = static_cast<size_t>(
          std::lower_bound(ends_.begin(), ends_.end(), instance_.first_point[as_index(member)]) - ends_.begin());
      for (; ends_[at] < last; ++at) usage[at] += used;
    }
    return usage;
  }

 private:
  const Instance& instance_;
  const std::vector<int>& members_;
  const std::vector<int>& choices_;
  std::vector<int> ends_;
};

void mark_over_limit(const Instance& instance, const Relaxation& relaxation, std::vector<bool>& is_out) {
  if (instance.num_points == 0) return;
  // What all groups use at least, each by itself at each time.
  std::vector<int64_t> least(as_index(instance.num_points) + 1, 0);
  std::vector<std::vector<std::vector<int64_t>>> usages(relaxation.members.size());
  std::vector<std::vector<int64_t>> least_of(usages.size());
  for (size_t g = 0; g < usages.size(); ++g) {
    const GroupUsage usage(instance, relaxation, g);
    if (usage.ends().empty()) continue;
    const auto first = as_index(relaxation.graph->first_choice[g]);
    least_of[g].assign(usage.ends().size(), kNoLimit);
    for (size_t i = 0; i < as_index(relaxation.graph->num_choices(static_cast<int>(g))); ++i) {
      usages[g].push_back(usage.of(i));
      if (is_out[first + i]) continue;
      for (size_t k = 0; k < least_of[g].size(); ++k) least_of[g][k] = std::min(least_of[g][k], usages[g][i][k]);
    }
    int64_t now = 0;
    for (size_t k = 0; k < least_of[g].size(); ++k) {
      const int64_t used = k + 1 < least_of[g].size() && least_of[g][k] != kNoLimit ? least_of[g][k] : 0;
      least[as_index(usage.ends()[k])] += used - now;
      now = used;
    }
  }
  std::partial_sum(least.begin(), least.end(), least.begin());
  for (size_t g = 0; g < usages.size(); ++g) {
    const GroupUsage usage(instance, relaxation, g);
    const auto first = as_index(relaxation.graph->first_choice[g]);
    for (size_t k = 0; k + 1 < usage.ends().size(); ++k) {
      const int64_t most = *std::max_element(least.begin() + usage.ends()[k], least.begin() + usage.ends()[k + 1]);
      for (size_t i = 0; i < usages[g].size(); ++i) {
        if (most + usages[g][i][k] - least_of[g][k] > instance.usage_limit) is_out[first + i] = true;
      }
    }
  }
}

// Of choices that are alike for all that stand beside the group, those that cost and use no less than another.
void mark_dominated(const Instance& instance, const Relaxation& relaxation, std::vector<bool>& is_out) {
  std::vector<int> group_of(as_index(instance.num_nodes()));
  for (size_t g = 0; g < relaxation.members.size(); ++g) {
    for (const int member : relaxation.members[g]) group_of[as_index(member)] = static_cast<int>(g);
  }
  for (size_t g = 0; g < relaxation.members.size(); ++g) {
    const auto& members = relaxation.members[g];
    const auto& choices = relaxation.choices[g];
    if (members.size() < 2) continue;
    std::vector<size_t> outer;  // places of members with a neighbour in another group
    for (size_t m = 0; m < members.size(); ++m) {
      const auto edges = instance.edges_of(members[m]);
      if (std::any_of(edges.begin(), edges.end(),
                      [&](const auto& edge) { return group_of[as_index(edge.other)] != static_cast<int>(g); })) {
        outer.push_back(m);
      }
    }
    if (outer.size() == members.size()) continue;
    const auto first = as_index(relaxation.graph->first_choice[g]);
    const auto costs = relaxation.graph->costs_of(static_cast<int>(g));
    const GroupUsage usage(instance, relaxation, g);
    std::map<std::vector<int>, std::vector<std::vector<int64_t>>> alike;  // usages of those kept, cheapest first
    std::vector<size_t> order(costs.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return costs[a] < costs[b]; });
    for (const size_t i : order) {
      if (is_out[first + i]) continue;
      std::vector<int> key;
      for (const size_t m : outer) key.push_back(choices[i * members.size() + m]);
      auto& kept = alike[key];
      auto used = usage.of(i);
      const auto uses_no_more = [&](const auto& other) {
        return std::equal(other.begin(), other.end(), used.begin(), std::less_equal<>());
      };
      if (std::any_of(kept.begin(), kept.end(), uses_no_more)) {
        is_out[first + i] = true;
      } else {
        kept.push_back(std::move(used));
      }
    }
  }
}

}  // namespace

bool mark_needless(const Instance& instance, const Relaxation& relaxation, std::vector<bool>& is_out) {
  mark_dominated(instance, relaxation, is_out);
  mark_over_limit(instance, relaxation, is_out);
  mark_forbidden(*relaxation.graph, is_out);
  for (int n = 0; n < relaxation.graph->num_nodes(); ++n) {
    const auto begin = is_out.begin() + relaxation.graph->first_choice[as_index(n)];
    if (std::find(begin, begin + relaxation.graph->num_choices(n), false) == begin + relaxation.graph->num_choices(n)) {
      return false;
    }
  }
  return true;
}

}  // namespace tessera::solver
