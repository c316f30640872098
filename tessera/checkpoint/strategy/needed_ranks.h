// Which ranks of the source a rank of the destination reads, by the placements alone. Internal to checkpoint/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/strategy/placement.h"

namespace tessera::checkpoint {

// The slicing of a tensor of `ndim` dims in a stage: a layout without a tensor map leaves it whole. Throws
// InvalidArgument, naming the strategy file, when the layout has another number of dims.
Slicing slicing_for(const ParameterPlacement::InStage& parameter, int ndim, const std::string& strategy);

// For each slice of a tensor that overlaps with the region `wanted`, the position of the rank to read it from, of those
// that are there: the one that has the place among those of equal slices that `home` has, else the first.
std::map<int64_t, int64_t> choose_holders(const Slicing& slicing, const Shape& global, const Region& wanted,
                                          int64_t home, FunctionRef<bool(int64_t)> is_there);

// The stages of the source that hold parameters of a rank of the destination; all where nothing says.
std::vector<int64_t> needed_stages(const ParameterPlacement& from, const ParameterPlacement& to, int64_t to_stage);
// The source rank whose file gives what is copied unchanged.
int64_t home_rank(const ParameterPlacement& from, const ParameterPlacement& to, int64_t from_stage, int64_t rank);

}  // namespace tessera::checkpoint
