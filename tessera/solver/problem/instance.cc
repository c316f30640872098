#include "tessera/solver/problem/instance.h"

#include "tessera/solver/problem/time_points.h"

namespace tessera::solver {

Instance::Instance(const Problem& problem) : usage_limit(problem.usage_limit) {
  const TimePoints points = time_points(problem);
  num_points = points.count;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const ProblemNode& node = problem.nodes[n];
    add_node(node.costs);
    usage.insert(usage.end(), node.usages.begin(), node.usages.end());
    first_point.push_back(points.ranges[n].first);
    last_point.push_back(points.ranges[n].second);
  }
  for (const Edge& edge : problem.edges) add_edge(edge.u, edge.v, static_cast<const std::vector<double>&>(edge.costs));
  finish();
}

}  // namespace tessera::solver
