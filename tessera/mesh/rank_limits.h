// How many ranks there may be, and into how many parts they may split a dim.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/mesh/strategy.h"

namespace tessera::mesh {

// A plan or a simulation of more ranks would take hours, and nobody has so many.
inline constexpr int kMaxRanks = 65536;

// What is wrong with a count of a strategy over `num_ranks` ranks, to follow its text: each must be from 1 to num_ranks
// before any are multiplied. "" where all are.
std::string fault_of_counts(const Strategy& strategy, int64_t num_ranks);

}  // namespace tessera::mesh
