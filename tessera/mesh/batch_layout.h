// How the columns of a batch lie on the ranks where a strategy says so (dataset_strategy): one tuple per column, one
// count per dim.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/mesh/layout.h"
#include "tessera/mesh/strategy.h"
#include "tessera/tensor/type.h"

namespace tessera::mesh {

struct BatchColumn {
  std::string name;
  Type type;  // of the whole batch
};

// Returns the layout of each column on ranks [0, num_ranks): a grid in the order of its dims, repeated along a last
// axis. Throws StrategyError naming the strategy where it has another number of tuples, a tuple another number of
// counts than its column has dims, and where counts do not divide the ranks.
std::vector<Layout> layouts_of_batch(const Strategy& strategy, std::span<const BatchColumn> columns, int num_ranks);

}  // namespace tessera::mesh
