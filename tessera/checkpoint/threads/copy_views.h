// Copying many values at once, as fast as the machine's memory: large ones in pieces, in several threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

// Equal shapes, any strides; another dtype is converted.
struct ViewCopy {
  TensorView from;
  TensorView to;
};

// The same copies in pieces of at most `piece_bytes`, where both views are dense and of one dtype.
std::vector<ViewCopy> cut_copies(std::span<const ViewCopy> copies, int64_t piece_bytes);

// Returns when all are done. No destination overlaps another one or a source.
void copy_views(std::span<const ViewCopy> copies);

}  // namespace tessera::checkpoint
