// A graph whose nodes are groups of an instance's nodes: a choice of a group is one for each of its members. What is
// bounded edge by edge on the instance is bounded exactly within a group, so that the larger groups are, the higher the
// bound of a Dual; and a choice of a group may be seen to be bad where each of its members' choices is good for itself.
#pragma once

#include <memory>
#include <vector>

#include "tessera/solver/problem/cost_graph.h"
#include "tessera/solver/problem/instance.h"

namespace tessera::solver {

struct Relaxation {
  // Each node alone; the instance must outlive it.
  explicit Relaxation(const Instance& instance);
  Relaxation() = default;

  std::shared_ptr<const CostGraph> graph;
  std::vector<std::vector<int>> members;  // the members of each group
  std::vector<std::vector<int>> choices;  // the choices of each group's members, row by row of its own choices

  // The instance's choices for those of the groups.
  std::vector<int> of_instance(const std::vector<int>& of_groups) const;
};

}  // namespace tessera::solver
