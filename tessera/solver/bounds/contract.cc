#include "tessera/solver/bounds/contract.h"
#include "tessera/base/integers.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

namespace tessera::solver {
namespace {

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
    CostGraph graph;
    for (const auto& costs : cost_) graph.add_node(costs);
    make_edges(graph, made.state.moved);
    graph.finish();
    // With what edges have become part of.
    auto cost = graph.cost.begin();
    for (const auto& costs : cost_) cost = std::copy(costs.begin(), costs.end(), cost);
    for (const auto& left : left_) made.state.node.insert(made.state.node.end(), left.begin(), left.end());
    relaxation.graph = std::make_shared<const CostGraph>(std::move(graph));
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
        const double cost =
            dual_.node_cost(n, i) + dual_.node_cost(partner, j) + (edge < 0 ? 0 : dual_.edge_cost(edge, i, j));
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
  void make_edges(CostGraph& graph, std::vector<double>& moved) {
    std::vector<std::tuple<int, int, int>> between;  // groups, in order, and an edge
    for (int e = 0; e < graph_.num_edges(); ++e) {
      const int a = group_of_[as_index(graph_.u[as_index(e)])];
      const int b = group_of_[as_index(graph_.v[as_index(e)])];
      if (a != b) between.emplace_back(std::min(a, b), std::max(a, b), e);
    }
    std::sort(between.begin(), between.end());
    for (size_t begin = 0; begin < between.size();) {
      const auto [a, b, first] = between[begin];
      NewEdge edge{
          a, b, {}, std::vector<double>(cost_[as_index(a)].size()), std::vector<double>(cost_[as_index(b)].size())};
      edge.costs.assign(edge.moved_at_u.size() * edge.moved_at_v.size(), 0.0);
      for (; begin < between.size() && std::get<0>(between[begin]) == a && std::get<1>(between[begin]) == b; ++begin) {
        add_up(edge, std::get<2>(between[begin]));
      }
      if (separate(edge)) continue;
      graph.add_edge(a, b, edge.costs);
      moved.insert(moved.end(), edge.moved_at_u.begin(), edge.moved_at_u.end());
      moved.insert(moved.end(), edge.moved_at_v.begin(), edge.moved_at_v.end());
    }
  }

  void add_up(NewEdge& to, int e) {
    const int u = graph_.u[as_index(e)];
    const int v = graph_.v[as_index(e)];
    const bool is_turned = group_of_[as_index(u)] != to.u;
    const auto& rows = as_[as_index(is_turned ? v : u)];
    const auto& columns = as_[as_index(is_turned ? u : v)];
    const CostGraph::Incidence incidence{e, is_turned ? u : v, !is_turned};
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
  const CostGraph& graph_;
  const Dual& dual_;
  const Contraction& how_;
  std::vector<int> group_of_;         // of each old group
  std::vector<std::vector<int>> as_;  // of each old group, by choice of the new one: its own
  std::vector<std::vector<double>> cost_, left_;
};

}  // namespace

Contracted contract(const Relaxation& relaxation, const Dual& dual, const Contraction& how) {
  return Contractor(relaxation, dual, how).run();
}

}  // namespace tessera::solver
