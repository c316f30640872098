#include "tessera/solver/graph.h"

namespace tessera::solver {

void Graph::add_node(std::span<const double> costs) {
  cost.insert(cost.end(), costs.begin(), costs.end());
  first_choice.push_back(static_cast<int>(cost.size()));
}

void Graph::add_edge(int from, int to, std::span<const double> costs) {
  u.push_back(from);
  v.push_back(to);
  first_pair.push_back(by_u.size());
  by_u.insert(by_u.end(), costs.begin(), costs.end());
  const auto columns = static_cast<size_t>(num_choices(to));
  for (size_t j = 0; j < columns; ++j) {
    for (size_t pair = j; pair < costs.size(); pair += columns) by_v.push_back(costs[pair]);
  }
}

void Graph::finish() {
  std::vector<std::vector<Incidence>> of_node(static_cast<size_t>(num_nodes()));
  for (int e = 0; e < num_edges(); ++e) {
    of_node[static_cast<size_t>(at(u, e))].push_back({e, at(v, e), true});
    of_node[static_cast<size_t>(at(v, e))].push_back({e, at(u, e), false});
  }
  first_incidence.push_back(0);
  for (const auto& list : of_node) {
    incidences.insert(incidences.end(), list.begin(), list.end());
    first_incidence.push_back(static_cast<int>(incidences.size()));
  }
}

}  // namespace tessera::solver
