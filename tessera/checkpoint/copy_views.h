// Copying many values at once, as fast as the machine's memory: large ones in pieces, in several threads.
#pragma once

#include <span>

#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// Equal shapes, any strides; another dtype is converted.
struct ViewCopy {
  TensorView from;
  TensorView to;
};

// Returns when all are done. No destination overlaps another one or a source.
void copy_views(std::span<const ViewCopy> copies);

}  // namespace tessera::checkpoint
