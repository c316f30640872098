// Problems like those of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism, of any size: a step of training
// on 8 x 4 devices. A node is a value, its choices are the ways to split it; edges are the costs of splitting anew.
//
// Like the published ones in what decides how hard they are: 4, 9 or 16 choices for most nodes and some hundred for
// few, nearly all costs on edges, a third of them forbidden or more, few matrices on many edges, constants with
// hundreds of neighbours, parameters and activations that live long beside values that live for a few nodes, and a
// limit of 1.1 times the least that can be in use.
#pragma once

#include <cstdint>

#include "tessera/solver/problem/problem.h"

namespace tessera::testing {

// About num_nodes nodes and one and a half times as many edges; a function of its arguments. Feasible.
solver::Problem contest_problem(int num_nodes, uint64_t seed);

}  // namespace tessera::testing
