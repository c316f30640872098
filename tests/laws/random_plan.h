// Plans that no one would want: all operators, parameters and copies at random.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/compiler/search/search_problem.h"

namespace tessera::laws {

// A choice for each node of the problem, as far as one can be made of the other: the cheapest where all that is
// possible has a random cost. The same for the same seed, on every machine.
std::vector<int> random_solution(const compiler::SearchProblem& search, uint64_t seed);

}  // namespace tessera::laws
