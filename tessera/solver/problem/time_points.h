// The times at which a limit on usage can be broken. What lives changes only where a node begins or ends, and of two
// times the one at which all live that live at the other is enough.
#pragma once

#include <utility>
#include <vector>

#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

struct TimePoints {
  int count = 0;
  // For each node: it lives at the points first <= p < last. first == last where it uses nothing at any point that is
  // kept.
  std::vector<std::pair<int, int>> ranges;
};

// The points of `problem` at which the largest usages together exceed the limit: no other time can.
TimePoints time_points(const Problem& problem);

}  // namespace tessera::solver
