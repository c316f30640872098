// The parts of a region that follow each other in memory, or in a file, which holds a larger region row-major.
#pragma once

#include <cstdint>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/region.h"

namespace tessera::checkpoint {

// Calls `f` with the parts of a region that are contiguous in a container of it, in order. The region has elements.
void for_each_run(const Region& region, const Region& container, FunctionRef<void(const Region&)> f);

// How many these are.
int64_t num_runs(const Region& region, const Region& container);

// Where a region of the container begins there, in elements, row-major.
int64_t offset_in(const Region& container, const Region& region);

}  // namespace tessera::checkpoint
