#include "tessera/solver/problem/problem.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"

namespace tessera::solver {
namespace {

// So much that sums and differences of usages, twice over, are numbers of 64 bits.
constexpr int64_t kMostUsage = int64_t{1} << 61;

std::string node_text(const Problem& problem, size_t index) {
  const std::string& name = problem.nodes[index].name;
  return name.empty() ? fmt::format("node {}", index) : fmt::format("node {} \"{}\"", index, name);
}

void check_costs(const std::vector<double>& costs, const std::string& where) {
  for (size_t i = 0; i < costs.size(); ++i) {
    if (std::isnan(costs[i]) || costs[i] == -kForbidden) {
      throw InvalidArgument("{}: cost {} is {}, expected a finite number or plus infinity (forbidden)", where, i,
                            costs[i]);
    }
  }
}

}  // namespace

void validate(const Problem& problem) {
  int64_t most_usage = 0;  // if all nodes were alive at once
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const ProblemNode& node = problem.nodes[n];
    const auto where = node_text(problem, n);
    if (node.costs.empty()) throw InvalidArgument("{}: no choice", where);
    if (node.costs.size() != node.usages.size()) {
      throw InvalidArgument("{}: {} costs but {} usages, expected one of each per choice", where, node.costs.size(),
                            node.usages.size());
    }
    check_costs(node.costs, where);
    for (size_t i = 0; i < node.usages.size(); ++i) {
      if (node.usages[i] < 0) throw InvalidArgument("{}: usage {} is {}, expected >= 0", where, i, node.usages[i]);
    }
    if (__builtin_add_overflow(most_usage, *std::ranges::max_element(node.usages), &most_usage) ||
        most_usage > kMostUsage) {
      throw InvalidArgument("{}: with it the largest usages of the nodes add up to more than {}; count in larger units",
                            where, kMostUsage);
    }
  }
  const auto count = static_cast<int64_t>(problem.nodes.size());
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    const Edge& edge = problem.edges[e];
    for (const int end : {edge.u, edge.v}) {
      if (end < 0 || end >= count) {
        throw InvalidArgument("edge {}: there is no node {}, the nodes are 0 to {}", e, end, count - 1);
      }
    }
    const size_t rows = problem.nodes[static_cast<size_t>(edge.u)].costs.size();
    const size_t columns = problem.nodes[static_cast<size_t>(edge.v)].costs.size();
    if (edge.costs.size() != rows * columns) {
      throw InvalidArgument("edge {} between nodes {} and {}: {} costs, expected {} x {}", e, edge.u, edge.v,
                            edge.costs.size(), rows, columns);
    }
    check_costs(edge.costs, fmt::format("edge {} between nodes {} and {}", e, edge.u, edge.v));
  }
  if (problem.usage_limit < 0) throw InvalidArgument("usage_limit is {}, expected >= 0", problem.usage_limit);
}

Evaluation evaluate(const Problem& problem, const std::vector<int>& choices) {
  if (choices.size() != problem.nodes.size()) {
    throw InvalidArgument("{} choices for {} nodes", choices.size(), problem.nodes.size());
  }
  Evaluation result;
  std::vector<std::pair<int64_t, int64_t>> changes;  // of what is in use: at which time, by how much
  changes.reserve(2 * choices.size());
  for (size_t n = 0; n < choices.size(); ++n) {
    const ProblemNode& node = problem.nodes[n];
    const int choice = choices[n];
    if (choice < 0 || static_cast<size_t>(choice) >= node.costs.size()) {
      throw InvalidArgument("{}: choice {}, expected 0 to {}", node_text(problem, n), choice, node.costs.size() - 1);
    }
    result.cost += node.costs[static_cast<size_t>(choice)];
    if (node.begin >= node.end) continue;
    changes.emplace_back(node.begin, node.usages[static_cast<size_t>(choice)]);
    changes.emplace_back(node.end, -node.usages[static_cast<size_t>(choice)]);
  }
  for (const Edge& edge : problem.edges) {
    const auto columns = problem.nodes[static_cast<size_t>(edge.v)].costs.size();
    const auto row = static_cast<size_t>(choices[static_cast<size_t>(edge.u)]);
    result.cost += edge.costs[row * columns + static_cast<size_t>(choices[static_cast<size_t>(edge.v)])];
  }
  // What ends makes room for what begins at that time.
  std::sort(changes.begin(), changes.end());
  int64_t usage = 0;
  for (const auto& [time, change] : changes) {
    usage += change;
    if (usage > result.peak_usage) {
      result.peak_usage = usage;
      result.peak_time = time;
    }
  }
  result.feasible = std::isfinite(result.cost) && result.peak_usage <= problem.usage_limit;
  return result;
}

}  // namespace tessera::solver
