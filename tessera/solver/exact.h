// What is left between a solution and its bound, searched by branch and bound.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/solver/dual.h"
#include "tessera/solver/instance.h"

namespace tessera::solver {

struct ExactResult {
  bool complete = false;     // all that could be better than the given cost was looked at
  std::vector<int> choices;  // better than the given cost; empty where nothing is
  double cost = kForbidden;
};

// Depth first over the nodes in their order, with the dual's moved costs as bounds; gives up after `max_steps`.
ExactResult search_exactly(const Instance& instance, const Dual& dual, double cost, int64_t max_steps);

}  // namespace tessera::solver
