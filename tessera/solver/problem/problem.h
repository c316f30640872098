// What the solver solves: one choice for each node, costs on nodes and on pairs of nodes, and a limit on what is in use
// at any time. It knows nothing of networks: whoever asks says what a choice means.
//
//     minimise    sum over nodes v of costs[v][x_v]  +  sum over edges (u, v) of costs[u,v][x_u][x_v]
//     such that   at each time t:  sum over nodes v that live at t of usages[v][x_v]  <=  usage_limit
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::solver {

// How many nodes are looked at between two questions to a deadline: some milliseconds.
inline constexpr size_t kNodesPerQuestion = 1024;

// A cost that forbids a choice.
inline constexpr double kForbidden = std::numeric_limits<double>::infinity();
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct ProblemNode {
  // Lives at the times begin <= t < end; never where end <= begin.
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<double> costs;    // the cost of each choice: finite or kForbidden, any sign
  std::vector<int64_t> usages;  // the usage of each choice, >= 0; as many as costs
  std::string name = {};        // for messages; may be empty
};

// Costs that equal edges share: a copy is another view of the same numbers until one of the two is changed.
class SharedCosts {
 public:
  SharedCosts() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): costs are written as the vectors that they are
  SharedCosts(std::vector<double> values) : values_(std::make_shared<std::vector<double>>(std::move(values))) {}
  SharedCosts(std::initializer_list<double> values) : SharedCosts(std::vector<double>(values)) {}

  // NOLINTNEXTLINE(google-explicit-constructor)
  operator const std::vector<double>&() const { return *values_; }
  double operator[](size_t i) const { return (*values_)[i]; }
  size_t size() const { return values_->size(); }
  bool empty() const { return values_->empty(); }
  auto begin() const { return values_->cbegin(); }
  auto end() const { return values_->cend(); }
  bool operator==(const SharedCosts& other) const { return *values_ == *other.values_; }
  // The same for all that share these numbers.
  const void* identity() const { return values_.get(); }
  // The costs, to be changed: they are made this edge's own first.
  std::vector<double>& own() {
    if (values_.use_count() > 1) values_ = std::make_shared<std::vector<double>>(*values_);
    return *values_;
  }

 private:
  std::shared_ptr<std::vector<double>> values_ = std::make_shared<std::vector<double>>();
};

struct Edge {
  int u = 0;
  int v = 0;          // may be u, or joined to it by several edges
  SharedCosts costs;  // row-major, choices of u by choices of v
};

struct Problem {
  std::string name;
  std::vector<ProblemNode> nodes;
  std::vector<Edge> edges;
  int64_t usage_limit = kNoLimit;
};

// Throws InvalidArgument that names the node or edge: no choice, numbers that do not match, a NaN or minus infinity, a
// negative usage, a node that is not there.
void validate(const Problem& problem);

struct Evaluation {
  double cost = 0;  // kForbidden where a forbidden choice is made
  int64_t peak_usage = 0;
  int64_t peak_time = 0;  // the first time of that usage
  bool feasible = false;  // the cost is finite and the peak within the limit
};

// What `choices`, one for each node, cost; straight from the definition.
Evaluation evaluate(const Problem& problem, const std::vector<int>& choices);

}  // namespace tessera::solver
