// What the strategy files of stages, and the slices of ranks, are together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// Merges the strategy files of all pipeline stages into one: the files of `directory` that end in .ckpt or .json (all
// in one form), any number of equal ones per stage. Parameters are named STAGE-NAME. Throws InvalidArgument for a
// missing directory, an empty file, a stage that is missing or has two different files, and for what ParameterPlacement
// refuses.
void merge_pipeline_strategys(FileSystem& files, const std::string& directory, const std::string& dst_strategy_file);

// The layouts of a strategy file, by parameter. {} when it has none.
std::map<std::string, ParameterLayout> build_searched_strategy(FileSystem& files, const std::string& path);

// The whole tensor of the slices that the ranks hold, given in rank order; joined along dim 0 without a layout. Throws
// InvalidArgument when their number, dtypes or shapes do not fit.
Tensor merge_sliced_parameter(const std::vector<Tensor>& slices, const ParameterLayout* layout = nullptr);
// The slice that `rank` (of the stage) holds of a whole tensor. Throws InvalidArgument when the layout has no such rank
// or another number of dims.
Tensor slice_parameter(const Tensor& whole, const ParameterLayout& layout, int64_t rank);

}  // namespace tessera::checkpoint
