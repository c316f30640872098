// The search behind redistribute(): A* over the shardings of one mesh. Its time depends on the number of axes and dims,
// not of ranks: the first part of a dim is its largest, the last its smallest, so costs are closed forms.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::mesh {

struct RedistributionProblem {
  const Shape& shape;
  const Mesh& mesh;
  // No axis has size 1; all partial axes have one reduction.
  const Sharding& from;
  // Null: any whole sharding that an exchange to another mesh starts from.
  const Sharding* to = nullptr;
  int64_t element_bytes = 1;
  double latency_bytes = 0;
  bool enable_alltoall = true;
  // What holds on that other mesh: the elements that the busiest rank receives from a sharding of this one; the largest
  // slice; a bound of the elements that some rank receives, by the number of contributions that are still to be added.
  std::function<int64_t(const Sharding&)> exchange_elements;
  int64_t largest_slice = 0;
  std::function<int64_t(int64_t)> mean_elements;
};

struct FoundSteps {
  // On mesh 0; towards another mesh the last is an exchange, or a slice if nothing moves.
  std::vector<RedistributionStep> steps;
  int64_t latencies = 0;
  bool optimal = true;
};

FoundSteps search(const RedistributionProblem& problem);

}  // namespace tessera::mesh
