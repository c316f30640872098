// Slices of one tensor that overlap: stages of a pipeline that share a parameter may each cut it in a way of their own.
// Internal to this folder.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tessera/checkpoint/format/region.h"

namespace tessera::checkpoint {

// Deals regions, no two of them equal and all overlapping with `wanted`, to groups that each tile it: their regions do
// not overlap with each other and cover it. A region that several tilings have is in each of them. By indices; {} where
// a region is in no tiling that is found, looking at regions in the order given: those of one tiling must follow each
// other.
std::vector<std::vector<size_t>> tilings_of(std::span<const Region> regions, const Region& wanted);

}  // namespace tessera::checkpoint
