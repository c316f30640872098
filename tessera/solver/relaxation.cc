#include "tessera/solver/relaxation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace tessera::solver {
namespace {

size_t as_index(int i) { return static_cast<size_t>(i); }

// A choice of a new group: those of the one or two groups that it is made of.
struct Pick {
  int first;
  int second;
};

class Contractor {
 public:
  Contractor(const Relaxation& relaxation, const Dual& dual, const Contraction& how)
      : old_(relaxation), graph_(*relaxation.graph), dual_(dual), how_(how), group_of_(as_index(graph_.num_nodes())) {
    as_.resize(group_of_.size());
  }

  Contracted run() {
    Contracted made;
    auto& relaxation = made.relaxation;
    for (int n = 0; n < graph_.num_nodes(); ++n) {
      const int partner = how_.partner[as_index(n)];
      if (partner >= 0 && partner < n) continue;
      const auto picks = partner < 0 ? kept_alone(n) : kept_pairs(n, partner);
      if (picks.empty()) {
        made.is_empty = true;
        return made;
      }
      add_group(relaxation, n, partner, picks);
    }
    make_edges();
    Graph graph;
    graph.cost.reserve(cost_.size());
    for (const auto& costs : cost_) graph.add_node(costs);
    size_t pairs = 0;
    for (const NewEdge& edge : edges_) pairs += edge.costs.size();
    graph.by_u.reserve(pairs);
    graph.by_v.reserve(pairs);
    for (NewEdge& edge : edges_) {
      graph.add_edge(edge.u, edge.v, edge.costs);
      edge.costs = {};
      made.state.moved.insert(made.state.moved.end(), edge.moved_at_u.begin(), edge.moved_at_u.end());
      made.state.moved.insert(made.state.moved.end(), edge.moved_at_v.begin(), edge.moved_at_v.end());
    }
    graph.finish();
    for (const auto& left : left_) made.state.node.insert(made.state.node.end(), left.begin(), left.end());
    relaxation.graph = std::make_shared<const Graph>(std::move(graph));
    return made;
  }

 private:
  struct NewEdge {
    int u, v;
    std::vector<double> costs, moved_at_u, moved_at_v;
  };

  size_t first_choice(int n) const { return as_index(graph_.first_choice[as_index(n)]); }
  bool is_kept(int n, int i) const { return !how_.is_out[first_choice(n) + as_index(i)]; }

  std::vector<Pick> kept_alone(int n) const {
    std::vector<Pick> picks;
    for (int i = 0; i < graph_.num_choices(n); ++i) {
      if (is_kept(n, i)) picks.push_back({i, -1});
    }
    return picks;
  }

  int edge_between(int n, int partner) const {
    for (const auto& incidence : graph_.edges_of(n)) {
      if (incidence.other == partner) return incidence.edge;
    }
    return -1;
  }

  std::vector<Pick> kept_pairs(int n, int partner) const {
    const int edge = edge_between(n, partner);
    const double most = how_.most + dual_.least(n) + dual_.least(partner);
    std::vector<Pick> picks;
    for (int i = 0; i < graph_.num_choices(n); ++i) {
      if (!is_kept(n, i)) continue;
      for (int j = 0; j < graph_.num_choices(partner); ++j) {
        if (!is_kept(partner, j)) continue;
        const double cost = dual_.node_cost(n, i) + dual_.node_cost(partner, j) +
                            (edge < 0 ? 0 : dual_.edge_cost(edge, i, j));
        if (cost <= most && cost != kForbidden) picks.push_back({i, j});
      }
    }
    return picks;
  }

  // Group number members.size() of n and, where it is not -1, its partner.
  void add_group(Relaxation& relaxation, int n, int partner, const std::vector<Pick>& picks) {
    const auto group = static_cast<int>(relaxation.members.size());
    const int edge = partner < 0 ? -1 : edge_between(n, partner);
    std::vector<int> members = old_.members[as_index(n)];
    if (partner >= 0) {
      const auto& more = old_.members[as_index(partner)];
      members.insert(members.end(), more.begin(), more.end());
      group_of_[as_index(partner)] = group;
    }
    group_of_[as_index(n)] = group;
    std::vector<int> choices;
    std::vector<double> cost;
    std::vector<double> left;
    const auto append = [&](int from, int choice) {
      const auto count = static_cast<int64_t>(old_.members[as_index(from)].size());
      const auto begin = old_.choices[as_index(from)].begin() + choice * count;
      choices.insert(choices.end(), begin, begin + count);
    };
    for (const Pick& pick : picks) {
      append(n, pick.first);
      as_[as_index(n)].push_back(pick.first);
      cost.push_back(graph_.costs_of(n)[as_index(pick.first)]);
      left.push_back(dual_.node_cost(n, pick.first));
      if (partner < 0) continue;
      append(partner, pick.second);
      as_[as_index(partner)].push_back(pick.second);
      cost.back() += graph_.costs_of(partner)[as_index(pick.second)];
      left.back() += dual_.node_cost(partner, pick.second);
      if (edge < 0) continue;
      cost.back() += graph_.row(edge, pick.first)[pick.second];
      left.back() += dual_.edge_cost(edge, pick.first, pick.second);
    }
    relaxation.members.push_back(std::move(members));
    relaxation.choices.push_back(std::move(choices));
    cost_.push_back(std::move(cost));
    left_.push_back(std::move(left));
  }

  // The sums of the edges between the members of each two groups.
  void make_edges() {
    std::vector<std::tuple<int, int, int>> between;  // groups, in order, and an edge
    for (int e = 0; e < graph_.num_edges(); ++e) {
      const int a = group_of_[as_index(graph_.u[as_index(e)])];
      const int b = group_of_[as_index(graph_.v[as_index(e)])];
      if (a != b) between.emplace_back(std::min(a, b), std::max(a, b), e);
    }
    std::sort(between.begin(), between.end());
    for (size_t begin = 0; begin < between.size();) {
      const auto [a, b, first] = between[begin];
      NewEdge edge{a, b, {}, std::vector<double>(cost_[as_index(a)].size()), std::vector<double>(cost_[as_index(b)].size())};
      edge.costs.assign(edge.moved_at_u.size() * edge.moved_at_v.size(), 0.0);
      for (; begin < between.size() && std::get<0>(between[begin]) == a && std::get<1>(between[begin]) == b; ++begin) {
        add_up(edge, std::get<2>(between[begin]));
      }
      if (!separate(edge)) edges_.push_back(std::move(edge));
    }
  }

  void add_up(NewEdge& to, int e) {
    const int u = graph_.u[as_index(e)];
    const int v = graph_.v[as_index(e)];
    const bool is_turned = group_of_[as_index(u)] != to.u;
    const auto& rows = as_[as_index(is_turned ? v : u)];
    const auto& columns = as_[as_index(is_turned ? u : v)];
    const Graph::Incidence incidence{e, is_turned ? u : v, !is_turned};
    const double* at_u = &dual_.state().moved[dual_.first_moved(e)];
    const double* at_v = at_u + graph_.num_choices(u);
    const double* at_rows = is_turned ? at_v : at_u;
    const double* at_columns = is_turned ? at_u : at_v;
    double* sum = to.costs.data();
    for (size_t s = 0; s < rows.size(); ++s) {
      const double* costs = graph_.beside(incidence, rows[s]);
      to.moved_at_u[s] += at_rows[rows[s]];
      for (const int column : columns) *sum++ += costs[column];
    }
    for (size_t t = 0; t < columns.size(); ++t) to.moved_at_v[t] += at_columns[columns[t]];
  }

  // An edge whose cost is a(i) + b(j) becomes part of the nodes.
  bool separate(const NewEdge& edge) {
    const size_t rows = edge.moved_at_u.size();
    const size_t columns = edge.moved_at_v.size();
    const auto& costs = edge.costs;
    if (rows > 1 && columns > 1) {
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < columns; ++j) {
          const double cost = costs[i * columns + j];
          if (cost == kForbidden || cost != costs[i * columns] + costs[j] - costs[0]) return false;
        }
      }
    }
    // Where one side has a single choice costs may be forbidden.
    const double common = rows > 1 && columns > 1 ? costs[0] : 0;
    auto& cost_u = cost_[as_index(edge.u)];
    auto& left_u = left_[as_index(edge.u)];
    for (size_t i = 0; i < rows; ++i) {
      const double more = rows == 1 && columns > 1 ? 0 : costs[i * columns];
      cost_u[i] += more;
      left_u[i] += more + edge.moved_at_u[i];
    }
    auto& cost_v = cost_[as_index(edge.v)];
    auto& left_v = left_[as_index(edge.v)];
    for (size_t j = 0; j < columns; ++j) {
      const double more = columns == 1 ? 0 : costs[j] - common;
      cost_v[j] += more;
      left_v[j] += more + edge.moved_at_v[j];
    }
    return true;
  }

  const Relaxation& old_;
  const Graph& graph_;
  const Dual& dual_;
  const Contraction& how_;
  std::vector<int> group_of_;         // of each old group
  std::vector<std::vector<int>> as_;  // of each old group, by choice of the new one: its own
  std::vector<std::vector<double>> cost_, left_;
  std::vector<NewEdge> edges_;
};

// Marks choices that are forbidden or stand beside no allowed choice of a neighbour that is not marked.
void mark_forbidden(const Graph& graph, std::vector<bool>& is_out) {
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
  const auto look = [&](const Graph::Incidence& incidence, int node) {
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

}  // namespace

Relaxation::Relaxation(const Instance& instance)
    : graph(&instance, [](const Graph*) {}), members(as_index(instance.num_nodes())), choices(members.size()) {
  for (int n = 0; n < instance.num_nodes(); ++n) {
    members[as_index(n)] = {n};
    choices[as_index(n)].resize(as_index(instance.num_choices(n)));
    std::iota(choices[as_index(n)].begin(), choices[as_index(n)].end(), 0);
  }
}

std::vector<int> Relaxation::of_instance(const std::vector<int>& of_groups) const {
  size_t count = 0;
  for (const auto& group : members) count += group.size();
  std::vector<int> result(count);
  for (size_t g = 0; g < members.size(); ++g) {
    for (size_t m = 0; m < members[g].size(); ++m) {
      result[as_index(members[g][m])] = choices[g][as_index(of_groups[g]) * members[g].size() + m];
    }
  }
  return result;
}

Contracted contract(const Relaxation& relaxation, const Dual& dual, const Contraction& how) {
  return Contractor(relaxation, dual, how).run();
}

bool mark_impossible(const Instance& instance, const Relaxation& relaxation, std::vector<bool>& is_out) {
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

std::vector<int> choose_partners(const Relaxation& relaxation, const Dual& dual, const std::vector<bool>& is_out,
                                 double most, const PartnerLimits& limits) {
  const Graph& graph = *relaxation.graph;
  const auto nodes = as_index(graph.num_nodes());
  std::vector<std::vector<int>> kept(nodes);
  for (size_t n = 0; n < nodes; ++n) {
    for (int i = graph.first_choice[n]; i < graph.first_choice[n + 1]; ++i) {
      if (!is_out[as_index(i)]) kept[n].push_back(i - graph.first_choice[n]);
    }
  }
  std::vector<double> size(nodes);
  for (size_t n = 0; n < nodes; ++n) size[n] = static_cast<double>(kept[n].size());
  double pairs = 0;
  std::vector<double> width(nodes, 0.0);  // of its neighbours together
  for (int e = 0; e < graph.num_edges(); ++e) {
    const auto u = as_index(graph.u[as_index(e)]);
    const auto v = as_index(graph.v[as_index(e)]);
    pairs += size[u] * size[v];
    width[u] += size[v];
    width[v] += size[u];
  }
  struct Option {
    double rate;
    double more;  // pairs of the graph
    int u, v;
    double choices;
  };
  std::vector<Option> options;
  std::vector<int> seen(nodes, -1);
  for (int e = 0; e < graph.num_edges(); ++e) {
    const int u = graph.u[as_index(e)];
    const int v = graph.v[as_index(e)];
    const auto n = as_index(u);
    const auto m = as_index(v);
    if (size[n] * size[m] > 50.0 * static_cast<double>(limits.choices)) continue;
    const double highest = most + dual.least(u) + dual.least(v);
    double choices = 0;
    for (const int i : kept[n]) {
      for (const int j : kept[m]) {
        const double cost = dual.node_cost(u, i) + dual.node_cost(v, j) + dual.edge_cost(e, i, j);
        if (cost <= highest && cost != kForbidden) ++choices;
      }
    }
    if (choices > static_cast<double>(limits.choices)) continue;
    double common = 0;
    double common_width = 0;
    for (const auto& incidence : graph.edges_of(u)) seen[as_index(incidence.other)] = e;
    for (const auto& incidence : graph.edges_of(v)) {
      if (seen[as_index(incidence.other)] != e) continue;
      ++common;
      common_width += size[as_index(incidence.other)];
    }
    const double around = width[n] + width[m] - size[n] - size[m] - common_width;
    const double before = size[n] * width[n] + size[m] * width[m] - size[n] * size[m];
    const double more = choices * around - before;
    options.push_back({more / (1 + common), more, u, v, choices});
  }
  std::sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
    return std::tie(a.rate, a.u, a.v) < std::tie(b.rate, b.u, b.v);
  });
  std::vector<int> partner(nodes, -1);
  std::vector<bool> is_near(nodes, false);  // what was computed of it does not hold any more
  for (const Option& option : options) {
    const auto n = as_index(option.u);
    const auto m = as_index(option.v);
    if (is_near[n] || is_near[m] || pairs + option.more > static_cast<double>(limits.pairs)) continue;
    pairs += option.more;
    partner[n] = option.v;
    partner[m] = option.u;
    for (const int end : {option.u, option.v}) {
      is_near[as_index(end)] = true;
      for (const auto& incidence : graph.edges_of(end)) is_near[as_index(incidence.other)] = true;
    }
  }
  return partner;
}

}  // namespace tessera::solver
