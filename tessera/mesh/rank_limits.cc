#include "tessera/mesh/rank_limits.h"

#include <fmt/format.h>

namespace tessera::mesh {

std::string fault_of_counts(const Strategy& strategy, int64_t num_ranks) {
  for (size_t i = 0; i < strategy.size(); ++i) {
    for (size_t dim = 0; dim < strategy[i].size(); ++dim) {
      const int64_t count = strategy[i][dim];
      if (count >= 1 && count <= num_ranks) continue;
      return fmt::format("does not divide {} ranks: it splits dim {} of tensor {} in {}; a count must be from 1 to {}",
                         num_ranks, dim, i, count, num_ranks);
    }
  }
  return "";
}

}  // namespace tessera::mesh
