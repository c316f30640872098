// Dynamic programming over the graph of a problem: nodes with at most two neighbours are eliminated one after the
// other, each by the best it can do for every pair of its neighbours' choices. Where none is left the node with most
// neighbours takes what is best beside the least that they can cost, and elimination goes on.
#pragma once

#include "tessera/base/clock.h"
#include "tessera/base/deadline.h"
#include "tessera/solver/solve.h"

namespace tessera::solver {

// Fast, and exact where nodes need not be fixed: then the solution is optimal and its cost is the bound. Does not look
// at usage: a solution that breaks the limit is none. One thread; equal problems have equal solutions. `clock` tells
// Solution::seconds. Throws Stopped where it is.
Solution solve_by_elimination(const Problem& problem, const Clock& clock = Clock::system(),
                              const Deadline& stop = kNoDeadline);

}  // namespace tessera::solver
