// A smaller problem with the same solutions: what can be decided or joined without search is.
#pragma once

#include <utility>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

// Nodes of `problem` keep their order. No edge joins a node to itself, no two edges the same nodes, u < v; no choice is
// forbidden outright, and each choice of a node is allowed beside some choice of each neighbour.
struct ReducedProblem {
  Problem problem;
  // The original's choice for each node and choice of the reduced problem, in the original's numbering.
  std::vector<std::vector<int>> choices;
  bool infeasible = false;  // some node has no choice that is allowed; `problem` means nothing then

  // The original's choices for those of the reduced problem.
  std::vector<int> original(const std::vector<int>& reduced) const;
};

// - choices that are forbidden, use more than the limit by themselves, or stand beside no allowed choice of a neighbour
//   are left out;
// - edges between the same nodes are added up, edges that are sums of a cost for each end become costs of nodes;
// - a choice is left out where another costs no more whatever the neighbours choose, and uses no more, until the
//   deadline is over.
ReducedProblem reduce(const Problem& problem, const Deadline& deadline = kNoDeadline);

}  // namespace tessera::solver
