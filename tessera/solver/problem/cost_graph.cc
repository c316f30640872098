#include "tessera/solver/problem/cost_graph.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>

namespace tessera::solver {

void CostGraph::add_node(std::span<const double> costs) {
  cost.insert(cost.end(), costs.begin(), costs.end());
  first_choice.push_back(static_cast<int>(cost.size()));
}

void CostGraph::add_edge(int from, int to, std::span<const double> costs) {
  u.push_back(from);
  v.push_back(to);
  num_pairs += costs.size();
  // Networks repeat their layers: a cache holds what is different, and is many times as fast as memory.
  const auto bytes = std::as_bytes(costs);
  auto& alike = alike_[std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()})];
  for (const int other : alike) {
    const auto rows = static_cast<size_t>(num_choices(at(u, other)));
    const size_t first = at(first_pair, other);
    if (num_choices(at(v, other)) != num_choices(to) || rows * static_cast<size_t>(num_choices(to)) != costs.size() ||
        !std::equal(costs.begin(), costs.end(), by_u.begin() + static_cast<std::ptrdiff_t>(first))) {
      continue;
    }
    first_pair.push_back(first);
    return;
  }
  alike.push_back(num_edges() - 1);
  first_pair.push_back(by_u.size());
  by_u.insert(by_u.end(), costs.begin(), costs.end());
  const auto columns = static_cast<size_t>(num_choices(to));
  for (size_t j = 0; j < columns; ++j) {
    for (size_t pair = j; pair < costs.size(); pair += columns) by_v.push_back(costs[pair]);
  }
}

void CostGraph::finish() {
  alike_.clear();
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
