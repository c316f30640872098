// What is left between a solution and its bound, searched by branch and bound.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/solver/bounds/dual.h"
#include "tessera/solver/bounds/relaxation.h"
#include "tessera/solver/problem/instance.h"

namespace tessera::solver {

struct ExactResult {
  bool complete = false;     // all that could be better than the given cost was looked at
  std::vector<int> choices;  // the instance's, better than the given cost; empty where nothing is
  double cost = kForbidden;
};

// Depth first over the groups in their order, with the moved costs of a dual of their graph as bounds; gives up after
// `max_steps`.
ExactResult search_exactly(const Instance& instance, const Relaxation& relaxation, const Dual& dual, double cost,
                           int64_t max_steps);

}  // namespace tessera::solver
