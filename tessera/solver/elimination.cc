#include "tessera/solver/elimination.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "tessera/solver/reduce.h"

namespace tessera::solver {
namespace {

using Table = std::vector<double>;

class Elimination {
 public:
  explicit Elimination(const Problem& problem) {
    const size_t n = problem.nodes.size();
    for (const Node& node : problem.nodes) costs_.push_back(node.costs);
    neighbours_.resize(n);
    taken_.resize(n);
    for (const Edge& edge : problem.edges) add_edge(edge.u, edge.v, edge.costs);
    for (size_t v = 0; v < n; ++v) queue_.insert({neighbours_[v].size(), static_cast<int>(v)});
  }

  std::vector<int> run() {
    while (!queue_.empty()) {
      const auto [degree, node] = *queue_.begin();
      if (degree <= 2) {
        eliminate(node);
      } else {
        fix(queue_.rbegin()->second);
      }
    }
    std::vector<int> choices(costs_.size());
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const Taken& taken = taken_[at(*it)];
      size_t row = 0;
      for (const int other : taken.others) row = row * costs_[at(other)].size() + at(choices[at(other)]);
      choices[at(*it)] = taken.best[row];
    }
    return choices;
  }
  bool is_exact() const { return is_exact_; }

 private:
  // What a node takes beside the choices of those that were its neighbours.
  struct Taken {
    std::vector<int> others;
    std::vector<int> best;  // row-major by their choices
  };

  static size_t at(int i) { return static_cast<size_t>(i); }
  int num_choices(int node) const { return static_cast<int>(costs_[at(node)].size()); }

  // Costs by the choices of u, then of v.
  void add_edge(int u, int v, const Table& costs) {
    Table& table = neighbours_[at(u)].try_emplace(v, costs.size(), 0.0).first->second;
    Table& mirrored = neighbours_[at(v)].try_emplace(u, costs.size(), 0.0).first->second;
    const size_t columns = at(num_choices(v));
    const size_t rows = at(num_choices(u));
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        table[i * columns + j] += costs[i * columns + j];
        mirrored[j * rows + i] += costs[i * columns + j];
      }
    }
  }

  // Takes a node out of the graph; what it costs beside its neighbours must have been handed to them.
  void remove(int node) {
    queue_.erase({neighbours_[at(node)].size(), node});
    for (const auto& [other, table] : neighbours_[at(node)]) {
      queue_.erase({neighbours_[at(other)].size(), other});
      neighbours_[at(other)].erase(node);
      queue_.insert({neighbours_[at(other)].size(), other});
    }
    neighbours_[at(node)].clear();
    order_.push_back(node);
  }

  void eliminate(int node) {
    const auto around = neighbours_[at(node)];
    Taken& taken = taken_[at(node)];
    for (const auto& [other, table] : around) taken.others.push_back(other);
    const int first = taken.others.empty() ? -1 : taken.others[0];
    const int second = taken.others.size() < 2 ? -1 : taken.others[1];
    const int rows = first < 0 ? 1 : num_choices(first);
    const int columns = second < 0 ? 1 : num_choices(second);
    Table least(at(rows) * at(columns), kForbidden);
    taken.best.assign(least.size(), 0);
    for (int x = 0; x < num_choices(node); ++x) {
      const double own = costs_[at(node)][at(x)];
      for (int i = 0; i < rows; ++i) {
        const double beside_first = own + (first < 0 ? 0 : around.at(first)[at(x * rows + i)]);
        for (int j = 0; j < columns; ++j) {
          const double cost = beside_first + (second < 0 ? 0 : around.at(second)[at(x * columns + j)]);
          const size_t pair = at(i * columns + j);
          if (cost < least[pair]) {
            least[pair] = cost;
            taken.best[pair] = x;
          }
        }
      }
    }
    remove(node);
    if (second >= 0) {
      const size_t before = neighbours_[at(first)].size();
      const size_t before_second = neighbours_[at(second)].size();
      add_edge(first, second, least);
      requeue(first, before);
      requeue(second, before_second);
    } else if (first >= 0) {
      for (int i = 0; i < rows; ++i) costs_[at(first)][at(i)] += least[at(i)];
    }
  }

  void requeue(int node, size_t degree_before) {
    queue_.erase({degree_before, node});
    queue_.insert({neighbours_[at(node)].size(), node});
  }

  void fix(int node) {
    is_exact_ = false;
    int best = 0;
    double least = kForbidden;
    for (int x = 0; x < num_choices(node); ++x) {
      double cost = costs_[at(node)][at(x)];
      for (const auto& [other, table] : neighbours_[at(node)]) {
        double beside = kForbidden;
        for (int j = 0; j < num_choices(other); ++j) {
          beside = std::min(beside, table[at(x * num_choices(other) + j)] + costs_[at(other)][at(j)]);
        }
        cost += beside;
      }
      if (cost < least) {
        least = cost;
        best = x;
      }
    }
    for (const auto& [other, table] : neighbours_[at(node)]) {
      for (int j = 0; j < num_choices(other); ++j) costs_[at(other)][at(j)] += table[at(best * num_choices(other) + j)];
    }
    taken_[at(node)].best = {best};
    remove(node);
  }

  std::vector<Table> costs_;
  std::vector<std::map<int, Table>> neighbours_;  // by node: the others with costs by its choices, then theirs
  std::set<std::pair<size_t, int>> queue_;        // nodes that are left, by number of neighbours
  std::vector<Taken> taken_;
  std::vector<int> order_;
  bool is_exact_ = true;
};

}  // namespace

Solution solve_by_elimination(const Problem& problem) {
  const auto begin = std::chrono::steady_clock::now();
  validate(problem);
  const ReducedProblem reduced = reduce(problem);
  Solution solution;
  if (reduced.infeasible) {
    solution.status = Status::kInfeasible;
    return solution;
  }
  Elimination elimination(reduced.problem);
  auto choices = reduced.original(elimination.run());
  const Evaluation evaluation = evaluate(problem, choices);
  solution.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (elimination.is_exact()) {
    // Without the limit nothing costs less, so with it neither.
    solution.bound = evaluation.cost;
    if (evaluation.cost == kForbidden) solution.status = Status::kInfeasible;
  }
  if (!evaluation.feasible) return solution;
  solution.choices = std::move(choices);
  solution.cost = evaluation.cost;
  solution.status = elimination.is_exact() ? Status::kOptimal : Status::kFeasible;
  return solution;
}

}  // namespace tessera::solver
