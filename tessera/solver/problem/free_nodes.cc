#include "tessera/solver/problem/free_nodes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/integers.h"
#include "tessera/solver/problem/time_points.h"

namespace tessera::solver {
namespace {

// A pair of neighbours with more pairs of choices than this is not joined: the edge would cost more than the node.
constexpr size_t kMaxPairs = 1 << 14;

class Eliminator {
 public:
  // `max_pairs`: see kMaxPairs.
  Eliminator(Problem& problem, FreeNodes& result, size_t max_pairs)
      : problem_(problem), result_(result), max_pairs_(max_pairs), points_(time_points(problem)) {
    edges_of_.resize(problem.nodes.size());
    is_left_.assign(problem.nodes.size(), true);
    for (size_t e = 0; e < problem.edges.size(); ++e) {
      edges_of_[as_index(problem.edges[e].u)][problem.edges[e].v] = e;
      edges_of_[as_index(problem.edges[e].v)][problem.edges[e].u] = e;
    }
    for (size_t n = 0; n < problem.nodes.size(); ++n) look_at(static_cast<int>(n));
  }

  void take_out_free(const Deadline& deadline = kNoDeadline) {
    for (size_t looked_at = 1; !queue_.empty(); ++looked_at) {
      if (looked_at % kNodesPerQuestion == 0 && deadline.is_over()) return;
      const int node = queue_.begin()->second;
      queue_.erase(queue_.begin());
      if (can_go(node)) take_out(node);
    }
  }

  void take_out_all(const Deadline& stop) {
    for (take_out_free(stop);; take_out_free(stop)) {
      stop.throw_if_stopped();
      int most = -1;
      for (size_t n = 0; n < is_left_.size(); ++n) {
        if (!is_left_[n]) continue;
        if (most < 0 || edges_of_[n].size() >= edges_of_[as_index(most)].size()) most = static_cast<int>(n);
      }
      if (most < 0) return;
      if (edges_of_[as_index(most)].empty()) {
        take_out(most);
      } else {
        fix(most);
      }
    }
  }

 private:
  size_t size(int node) const { return problem_.nodes[as_index(node)].costs.size(); }

  // Fewer neighbours first, then the order of nodes.
  void look_at(int node) {
    const size_t degree = edges_of_[as_index(node)].size();
    if (degree == 1 || degree == 2) queue_.insert({degree, node});
  }

  bool can_go(int node) const {
    const auto [first, last] = points_.ranges[as_index(node)];
    if (first < last) return false;
    const auto& around = edges_of_[as_index(node)];
    if (around.empty() || around.size() > 2) return false;
    return around.size() == 1 || size(around.begin()->first) * size(around.rbegin()->first) <= max_pairs_;
  }

  // Of the edge to `other`: row-major by the choices of `other`, then of the node.
  std::vector<double> by_other(int node, int other, size_t edge) const {
    const auto& costs = problem_.edges[edge].costs;
    if (problem_.edges[edge].u == other) return costs;
    std::vector<double> turned(costs.size());
    const size_t rows = size(node);
    const size_t columns = size(other);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) turned[j * rows + i] = costs[i * columns + j];
    }
    return turned;
  }

  void take_out(int node) {
    const auto around = edges_of_[as_index(node)];
    const int first = around.empty() ? -1 : around.begin()->first;
    const int second = around.size() < 2 ? -1 : around.rbegin()->first;
    const std::vector<double> nothing(size(node), 0.0);
    const auto beside_first = first < 0 ? nothing : by_other(node, first, around.begin()->second);
    const auto beside_second = second < 0 ? nothing : by_other(node, second, around.rbegin()->second);
    const auto& own = problem_.nodes[as_index(node)].costs;
    const size_t rows = first < 0 ? 1 : size(first);
    const size_t columns = second < 0 ? 1 : size(second);
    std::vector<double> least(rows * columns);
    FreeNodes::Taken taken{node, {first, second}, std::vector<int>(rows * columns)};
    std::vector<double> with_first(own.size());
    for (size_t i = 0; i < rows; ++i) {
      for (size_t x = 0; x < own.size(); ++x) with_first[x] = own[x] + beside_first[i * own.size() + x];
      for (size_t j = 0; j < columns; ++j) {
        const double* with_second = &beside_second[j * own.size()];
        size_t best = 0;
        double cost = with_first[0] + with_second[0];
        for (size_t x = 1; x < own.size(); ++x) {
          if (with_first[x] + with_second[x] >= cost) continue;
          cost = with_first[x] + with_second[x];
          best = x;
        }
        least[i * columns + j] = cost;
        taken.best[i * columns + j] = static_cast<int>(best);
      }
    }
    remove(node, std::move(taken));
    if (second >= 0) {
      join(first, second, std::move(least));
    } else if (first >= 0) {
      for (size_t i = 0; i < rows; ++i) problem_.nodes[as_index(first)].costs[i] += least[i];
    }
    for (const auto& [other, edge] : around) look_at(other);
  }

  // To the choice that is best beside the least that the neighbours can cost, who pay for it.
  void fix(int node) {
    const auto around = edges_of_[as_index(node)];
    std::vector<double> total = problem_.nodes[as_index(node)].costs;
    for (const auto& [other, edge] : around) {
      const auto beside = by_other(node, other, edge);
      const auto& costs = problem_.nodes[as_index(other)].costs;
      for (size_t x = 0; x < total.size(); ++x) {
        double least = kForbidden;
        for (size_t j = 0; j < costs.size(); ++j) least = std::min(least, beside[j * total.size() + x] + costs[j]);
        total[x] += least;
      }
    }
    const auto best = static_cast<size_t>(std::min_element(total.begin(), total.end()) - total.begin());
    for (const auto& [other, edge] : around) {
      const auto beside = by_other(node, other, edge);
      auto& costs = problem_.nodes[as_index(other)].costs;
      for (size_t j = 0; j < costs.size(); ++j) costs[j] += beside[j * total.size() + best];
    }
    ++result_.num_fixed;
    remove(node, {node, {-1, -1}, {static_cast<int>(best)}});
    for (const auto& [other, edge] : around) look_at(other);
  }

  void remove(int node, FreeNodes::Taken taken) {
    result_.taken.push_back(std::move(taken));
    is_left_[as_index(node)] = false;
    for (const auto& [other, edge] : edges_of_[as_index(node)]) {
      problem_.edges[edge].costs = SharedCosts();
      edges_of_[as_index(other)].erase(node);
    }
    edges_of_[as_index(node)].clear();
  }

  // first < second.
  void join(int first, int second, std::vector<double> costs) {
    const auto [place, is_new] = edges_of_[as_index(first)].emplace(second, problem_.edges.size());
    if (is_new) {
      edges_of_[as_index(second)].emplace(first, problem_.edges.size());
      problem_.edges.push_back({first, second, std::move(costs)});
      return;
    }
    auto& sum = problem_.edges[place->second].costs.own();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += costs[i];
  }

  Problem& problem_;
  FreeNodes& result_;
  size_t max_pairs_;
  TimePoints points_;
  std::vector<bool> is_left_;
  std::vector<std::map<int, size_t>> edges_of_;  // by node: its neighbours, each with the edge
  std::set<std::pair<size_t, int>> queue_;
};

}  // namespace

std::vector<int> FreeNodes::original(const std::vector<int>& choices) const {
  std::vector<int> result(num_choices_.size(), 0);
  for (size_t i = 0; i < kept.size(); ++i) result[as_index(kept[i])] = choices[i];
  for (auto it = taken.rbegin(); it != taken.rend(); ++it) {
    const auto& [first, second] = it->neighbours;
    size_t pair = first < 0 ? 0 : as_index(result[as_index(first)]);
    if (second >= 0) pair = pair * as_index(num_choices_[as_index(second)]) + as_index(result[as_index(second)]);
    result[as_index(it->node)] = it->best[pair];
  }
  return result;
}

FreeNodes take_out_free_nodes(Problem problem, const Deadline& deadline) {
  FreeNodes result;
  for (const ProblemNode& node : problem.nodes) result.num_choices_.push_back(static_cast<int>(node.costs.size()));
  Eliminator(problem, result, kMaxPairs).take_out_free(deadline);
  std::vector<int> numbers(problem.nodes.size(), 0);
  for (const auto& taken : result.taken) numbers[as_index(taken.node)] = -1;
  result.problem.name = problem.name;
  result.problem.usage_limit = problem.usage_limit;
  for (size_t n = 0; n < numbers.size(); ++n) {
    if (numbers[n] < 0) continue;
    numbers[n] = static_cast<int>(result.kept.size());
    result.kept.push_back(static_cast<int>(n));
    result.problem.nodes.push_back(std::move(problem.nodes[n]));
  }
  for (Edge& edge : problem.edges) {
    if (edge.costs.empty()) continue;
    result.problem.edges.push_back({numbers[as_index(edge.u)], numbers[as_index(edge.v)], std::move(edge.costs)});
  }
  return result;
}

FreeNodes take_out_all_nodes(Problem problem, const Deadline& stop) {
  problem.usage_limit = kNoLimit;
  FreeNodes result;
  for (const ProblemNode& node : problem.nodes) result.num_choices_.push_back(static_cast<int>(node.costs.size()));
  Eliminator(problem, result, std::numeric_limits<size_t>::max()).take_out_all(stop);
  return result;
}

}  // namespace tessera::solver
