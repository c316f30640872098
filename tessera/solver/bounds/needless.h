// Choices of groups that a best solution does without, whatever anything costs elsewhere.
#pragma once

#include <vector>

#include "tessera/solver/bounds/relaxation.h"
#include "tessera/solver/problem/instance.h"

namespace tessera::solver {

// Marks choices that are forbidden, stand beside no allowed choice of a neighbour, use more than the limit leaves
// beside the least of all others, or cost and use no less than another that is the same to all neighbours. False where
// a group has none left.
bool mark_needless(const Instance& instance, const Relaxation& relaxation, std::vector<bool>& is_out);

}  // namespace tessera::solver
