// ElementTarget: a value that takes elements piece by piece, as one on a device does, where no memory of the host can
// be written to in its place.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/checkpoint/format/region.h"

namespace tessera::checkpoint {

class ElementTarget {
 public:
  virtual ~ElementTarget() = default;
  // Takes the elements of a region of the value, dense and row-major, in its dtype; they are the caller's again when it
  // returns. Any number of threads, whose regions do not overlap.
  virtual void write(const Region& region, std::span<const std::byte> elements) = 0;
};

}  // namespace tessera::checkpoint
