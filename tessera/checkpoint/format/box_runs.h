// The parts of a box that follow each other in memory, or in a file, which holds a larger box row-major.
#pragma once

#include <cstdint>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/box.h"

namespace tessera::checkpoint {

// Calls `f` with the parts of a box that are contiguous in a container of it, in order. The box has elements.
void for_each_run(const Box& box, const Box& container, FunctionRef<void(const Box&)> f);

// How many these are.
int64_t num_runs(const Box& box, const Box& container);

// Where a box of the container begins there, in elements, row-major.
int64_t offset_in(const Box& container, const Box& box);

}  // namespace tessera::checkpoint
