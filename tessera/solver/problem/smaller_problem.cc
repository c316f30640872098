#include "tessera/solver/problem/smaller_problem.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace tessera::solver {
namespace {

// Domination compares every pair of choices over all edges; beyond this many comparisons it costs more than it saves.
constexpr double kMaxComparisons = 2e7;

class Reducer {
 public:
  Reducer(const Problem& problem, const Deadline& deadline) : deadline_(deadline) {
    result_.problem.name = problem.name;
    result_.problem.usage_limit = problem.usage_limit;
    result_.problem.nodes = problem.nodes;
    for (const ProblemNode& node : problem.nodes) {
      result_.choices.emplace_back(node.costs.size());
      std::iota(result_.choices.back().begin(), result_.choices.back().end(), 0);
    }
    is_new_.assign(problem.nodes.size(), true);
    join_edges(problem);
  }

  ReducedProblem run() {
    for (bool changed = true; changed && !result_.infeasible;) {
      index_edges();
      changed = drop_impossible();
      if (result_.infeasible) break;
      separate_edges();
      index_edges();
      if (!changed) changed = drop_dominated();
    }
    return std::move(result_);
  }

 private:
  std::vector<ProblemNode>& nodes() { return result_.problem.nodes; }
  std::vector<Edge>& edges() { return result_.problem.edges; }
  size_t size(int node) const { return result_.problem.nodes[static_cast<size_t>(node)].costs.size(); }

  static std::vector<double> turn(const std::vector<double>& costs, size_t rows, size_t columns) {
    std::vector<double> turned(costs.size());
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) turned[j * rows + i] = costs[i * columns + j];
    }
    return turned;
  }

  void join_edges(const Problem& problem) {
    std::map<std::pair<int, int>, size_t> places;
    std::map<std::pair<const void*, size_t>, SharedCosts> turned;
    for (const Edge& edge : problem.edges) {
      const size_t columns = size(edge.v);
      if (edge.u == edge.v) {
        auto& costs = nodes()[static_cast<size_t>(edge.u)].costs;
        for (size_t i = 0; i < costs.size(); ++i) costs[i] += edge.costs[i * columns + i];
        continue;
      }
      Edge upward{std::min(edge.u, edge.v), std::max(edge.u, edge.v), edge.costs};
      if (edge.u > edge.v) {
        auto [known, is_first] = turned.try_emplace({edge.costs.identity(), columns});
        if (is_first) known->second = turn(edge.costs, size(edge.u), columns);
        upward.costs = known->second;
      }
      const auto [place, is_new] = places.emplace(std::pair{upward.u, upward.v}, edges().size());
      if (is_new) {
        edges().push_back(std::move(upward));
      } else {
        auto& sum = edges()[place->second].costs.own();
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += upward.costs[i];
      }
    }
  }

  void index_edges() {
    of_node_.assign(nodes().size(), {});
    for (size_t e = 0; e < edges().size(); ++e) {
      of_node_[static_cast<size_t>(edges()[e].u)].push_back(e);
      of_node_[static_cast<size_t>(edges()[e].v)].push_back(e);
    }
  }

  // Cost of choice i of `node` beside choice j of the edge's other end.
  double cost(const Edge& edge, size_t node, size_t i, size_t j) const {
    const size_t columns = size(edge.v);
    return static_cast<size_t>(edge.u) == node ? edge.costs[i * columns + j] : edge.costs[j * columns + i];
  }
  size_t other_size(const Edge& edge, size_t node) const {
    return size(static_cast<size_t>(edge.u) == node ? edge.v : edge.u);
  }

  bool drop_impossible() {
    bool any = false;
    for (size_t n = 0; n < nodes().size(); ++n) {
      const ProblemNode& node = nodes()[n];
      std::vector<bool> keep(node.costs.size());
      for (size_t i = 0; i < keep.size(); ++i) {
        keep[i] = node.costs[i] != kForbidden &&
                  (node.begin >= node.end || node.usages[i] <= result_.problem.usage_limit) &&
                  std::all_of(of_node_[n].begin(), of_node_[n].end(), [&](size_t e) {
                    for (size_t j = 0; j < other_size(edges()[e], n); ++j) {
                      if (cost(edges()[e], n, i, j) != kForbidden) return true;
                    }
                    return false;
                  });
      }
      any |= shrink(n, keep);
      if (nodes()[n].costs.empty()) {
        result_.infeasible = true;
        return false;
      }
    }
    return any;
  }

  // Leaves out the choices that are not kept; whether there were any.
  bool shrink(size_t n, const std::vector<bool>& keep) {
    if (std::all_of(keep.begin(), keep.end(), [](bool kept) { return kept; })) return false;
    const size_t before = keep.size();
    const auto select = [&](auto& values) {
      size_t to = 0;
      for (size_t i = 0; i < before; ++i) {
        if (keep[i]) values[to++] = values[i];
      }
      values.resize(to);
    };
    for (const size_t e : of_node_[n]) {
      Edge& edge = edges()[e];
      const bool is_row = static_cast<size_t>(edge.u) == n;
      const size_t columns = size(edge.v);
      std::vector<double> kept;
      for (size_t i = 0; i < edge.costs.size(); ++i) {
        if (keep[is_row ? i / columns : i % columns]) kept.push_back(edge.costs[i]);
      }
      kept.shrink_to_fit();
      edge.costs = std::move(kept);
      is_new_[static_cast<size_t>(is_row ? edge.v : edge.u)] = true;
    }
    select(nodes()[n].costs);
    select(nodes()[n].usages);
    select(result_.choices[n]);
    return true;
  }

  // An edge whose cost is a(i) + b(j) needs no edge.
  void separate_edges() {
    std::erase_if(edges(), [&](const Edge& edge) {
      const size_t columns = size(edge.v);
      const size_t rows = size(edge.u);
      const double first = edge.costs[0];
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < columns; ++j) {
          const double c = edge.costs[i * columns + j];
          if (c == kForbidden) return false;
          const double sum = edge.costs[i * columns] + edge.costs[j] - first;
          if (c != sum) return false;
        }
      }
      for (size_t i = 0; i < rows; ++i) nodes()[static_cast<size_t>(edge.u)].costs[i] += edge.costs[i * columns];
      for (size_t j = 0; j < columns; ++j) nodes()[static_cast<size_t>(edge.v)].costs[j] += edge.costs[j] - first;
      is_new_[static_cast<size_t>(edge.u)] = is_new_[static_cast<size_t>(edge.v)] = true;
      return true;
    });
  }

  // Whether choice a of node n costs and uses no more than choice b, whatever else is chosen.
  bool dominates(size_t n, size_t a, size_t b) const {
    const ProblemNode& node = result_.problem.nodes[n];
    if (node.begin < node.end && node.usages[a] > node.usages[b]) return false;
    double more = node.costs[a] - node.costs[b];
    // Most pairs differ already beside the neighbours' choices that suit b best.
    double beside_cheapest = more;
    for (size_t e = 0; e < of_node_[n].size(); ++e) {
      const Edge& edge = result_.problem.edges[of_node_[n][e]];
      const size_t j = cheapest_[e][b];
      const double with_b = cost(edge, n, b, j);
      if (with_b != kForbidden) beside_cheapest += cost(edge, n, a, j) - with_b;
    }
    if (beside_cheapest > 0) return false;
    for (const size_t e : of_node_[n]) {
      const Edge& edge = result_.problem.edges[e];
      double most = -kForbidden;
      for (size_t j = 0; j < other_size(edge, n); ++j) {
        const double with_b = cost(edge, n, b, j);
        if (with_b == kForbidden) continue;
        most = std::max(most, cost(edge, n, a, j) - with_b);
        if (most == kForbidden) return false;
      }
      more += most;
    }
    return more <= 0;
  }

  // For each edge of node n and each of its choices the choice at the other end that costs least beside it.
  void find_cheapest(size_t n) {
    cheapest_.assign(of_node_[n].size(), std::vector<size_t>(nodes()[n].costs.size(), 0));
    for (size_t e = 0; e < cheapest_.size(); ++e) {
      const Edge& edge = edges()[of_node_[n][e]];
      for (size_t i = 0; i < cheapest_[e].size(); ++i) {
        double least = kForbidden;
        for (size_t j = 0; j < other_size(edge, n); ++j) {
          if (cost(edge, n, i, j) >= least) continue;
          least = cost(edge, n, i, j);
          cheapest_[e][i] = j;
        }
      }
    }
  }

  bool drop_dominated() {
    bool any = false;
    for (size_t n = 0; n < nodes().size(); ++n) {
      if (n % kNodesPerQuestion == kNodesPerQuestion - 1 && deadline_.is_over()) return any;
      const size_t count = nodes()[n].costs.size();
      double comparisons = static_cast<double>(count * count);
      double width = 1;
      for (const size_t e : of_node_[n]) width += static_cast<double>(other_size(edges()[e], n));
      comparisons *= width;
      if (!is_new_[n] || count == 1 || comparisons > kMaxComparisons) continue;
      is_new_[n] = false;
      find_cheapest(n);
      std::vector<bool> keep(count, true);
      for (size_t b = 0; b < count; ++b) {
        for (size_t a = 0; a < count && keep[b]; ++a) {
          if (a != b && keep[a] && dominates(n, a, b)) keep[b] = false;
        }
      }
      any |= shrink(n, keep);
    }
    return any;
  }

  const Deadline& deadline_;
  ReducedProblem result_;
  std::vector<std::vector<size_t>> of_node_;
  std::vector<std::vector<size_t>> cheapest_;  // of the node that is looked at: by edge and choice
  std::vector<bool> is_new_;                   // by node: something around it changed since it was looked at
};

}  // namespace

std::vector<int> ReducedProblem::original(const std::vector<int>& reduced) const {
  std::vector<int> result;
  result.reserve(reduced.size());
  for (size_t n = 0; n < reduced.size(); ++n) result.push_back(choices[n][static_cast<size_t>(reduced[n])]);
  return result;
}

ReducedProblem reduce(const Problem& problem, const Deadline& deadline) { return Reducer(problem, deadline).run(); }

}  // namespace tessera::solver
