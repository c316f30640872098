// Recursive programming: the ranks are cut along one axis of the grid after the other; for each cut the operators are
// taken by their work, the largest first, and each is cut in the way that is cheapest beside those before it.
#pragma once

#include "tessera/base/clock.h"
#include "tessera/base/deadline.h"
#include "tessera/compiler/search/search_problem.h"
#include "tessera/solver/solve.h"

namespace tessera::compiler {

// A solution of the problem, without a bound. Very fast; does not look at memory: a solution that breaks the limit is
// none. `clock` tells Solution::seconds. Throws Stopped where it is.
solver::Solution search_recursively(const ir::Graph& graph, const SearchProblem& problem, const Clock& clock,
                                    const Deadline& stop);

}  // namespace tessera::compiler
