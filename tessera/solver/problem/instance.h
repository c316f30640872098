// A reduced problem laid out for computing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/solver/problem/cost_graph.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

struct Instance : CostGraph {
  // `problem` as reduce() leaves it; it may go afterwards.
  explicit Instance(const Problem& problem);

  std::span<const int64_t> usages_of(int node) const {
    return {&usage[static_cast<size_t>(at(first_choice, node))], static_cast<size_t>(num_choices(node))};
  }
  // Whether the node takes part in the limit.
  bool is_limited(int node) const { return at(first_point, node) < at(last_point, node); }

  std::vector<int64_t> usage;                // beside cost
  std::vector<int> first_point, last_point;  // the range of each node, as TimePoints::ranges has it
  int num_points = 0;
  int64_t usage_limit = kNoLimit;
};

}  // namespace tessera::solver
