#include "tessera/solver/problem/fold.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tessera/base/error.h"

namespace tessera::solver {

std::vector<int> FoldedProblem::unfold(const std::vector<int>& choices) const {
  std::vector<int> original;
  original.reserve(class_of.size());
  for (const int c : class_of) original.push_back(choices[static_cast<size_t>(c)]);
  return original;
}

FoldedProblem fold(const Problem& problem, std::span<const int> classes) {
  FoldedProblem folded;
  folded.problem.name = problem.name;
  folded.class_of.assign(classes.begin(), classes.end());
  const int num_classes = classes.empty() ? 0 : 1 + *std::max_element(classes.begin(), classes.end());
  folded.problem.nodes.resize(static_cast<size_t>(num_classes));
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const ProblemNode& node = problem.nodes[n];
    ProblemNode& sum = folded.problem.nodes[static_cast<size_t>(classes[n])];
    if (sum.costs.empty()) {
      sum.name = node.name;
      sum.costs.resize(node.costs.size());
      sum.usages.resize(node.costs.size());
    }
    if (sum.costs.size() != node.costs.size()) {
      throw InvalidArgument("node {} \"{}\" has {} choices, others of its class have {}", n, node.name,
                            node.costs.size(), sum.costs.size());
    }
    for (size_t i = 0; i < node.costs.size(); ++i) sum.costs[i] += node.costs[i];
  }
  // Edges with the same costs are counted, then added up once.
  std::map<std::tuple<int, int, const void*>, std::pair<const Edge*, int>> counts;
  for (const Edge& edge : problem.edges) {
    const int u = classes[static_cast<size_t>(edge.u)];
    const int v = classes[static_cast<size_t>(edge.v)];
    auto& [first, count] = counts[{u, v, edge.costs.identity()}];
    first = &edge;
    ++count;
  }
  std::map<std::pair<int, int>, std::vector<double>> sums;
  for (const auto& [key, counted] : counts) {
    const auto& [edge, count] = counted;
    auto& costs = sums[{std::get<0>(key), std::get<1>(key)}];
    costs.resize(edge->costs.size());
    for (size_t i = 0; i < costs.size(); ++i) costs[i] += count * edge->costs[i];
  }
  for (auto& [ends, costs] : sums) folded.problem.edges.push_back({ends.first, ends.second, std::move(costs)});
  return folded;
}

}  // namespace tessera::solver
