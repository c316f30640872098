// A problem in which nodes of one class choose alike, as a smaller problem: repeated parts are solved once.
#pragma once

#include <span>
#include <vector>

#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

// One node for each class, with the sums of its members' costs; edges between classes likewise. Usage is not looked at:
// the members live at different times, so there is no limit.
struct FoldedProblem {
  Problem problem;
  std::vector<int> class_of;  // the class of each node of the original

  // The original's choices for those of the folded problem.
  std::vector<int> unfold(const std::vector<int>& choices) const;
};

// `classes` gives each node of the problem a number of 0 to the highest, none left out. Throws InvalidArgument for
// members with different numbers of choices.
FoldedProblem fold(const Problem& problem, std::span<const int> classes);

}  // namespace tessera::solver
