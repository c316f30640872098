#include "tessera/solver/instance.h"

#include "tessera/solver/time_points.h"

namespace tessera::solver {

Instance::Instance(const Problem& problem) : usage_limit(problem.usage_limit) {
  const TimePoints points = time_points(problem);
  num_points = points.count;
  first_choice.push_back(0);
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const Node& node = problem.nodes[n];
    cost.insert(cost.end(), node.costs.begin(), node.costs.end());
    usage.insert(usage.end(), node.usages.begin(), node.usages.end());
    first_choice.push_back(static_cast<int>(cost.size()));
    first_point.push_back(points.ranges[n].first);
    last_point.push_back(points.ranges[n].second);
  }

  std::vector<std::vector<Incidence>> of_node(problem.nodes.size());
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    const Edge& edge = problem.edges[e];
    u.push_back(edge.u);
    v.push_back(edge.v);
    first_pair.push_back(by_u.size());
    by_u.insert(by_u.end(), edge.costs.begin(), edge.costs.end());
    const int rows = num_choices(edge.u);
    const int columns = num_choices(edge.v);
    for (int j = 0; j < columns; ++j) {
      for (int i = 0; i < rows; ++i) by_v.push_back(edge.costs[static_cast<size_t>(i * columns + j)]);
    }
    of_node[static_cast<size_t>(edge.u)].push_back({static_cast<int>(e), edge.v, true});
    of_node[static_cast<size_t>(edge.v)].push_back({static_cast<int>(e), edge.u, false});
  }
  first_incidence.push_back(0);
  for (const auto& list : of_node) {
    incidences.insert(incidences.end(), list.begin(), list.end());
    first_incidence.push_back(static_cast<int>(incidences.size()));
  }
}

}  // namespace tessera::solver
