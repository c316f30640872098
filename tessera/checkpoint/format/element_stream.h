// ElementStream: the elements of a value that the host does not have in its memory, as those of a value on a device.
// Who saves it takes them in pieces, so that no more of them than a piece is in the host's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/format/region.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {

class ElementStream {
 public:
  virtual ~ElementStream() = default;
  virtual const Type& type() const = 0;
  // Hands the elements of a region of the value to `sink`, row-major, in pieces of whole elements. Any number of
  // threads. Throws IoError where the device fails.
  using Sink = FunctionRef<void(std::span<const std::byte>)>;
  virtual void read(const Region& region, Sink sink) const = 0;
};

// StreamedRegion is a region of such a value.
struct StreamedRegion {
  std::shared_ptr<const ElementStream> stream;
  Region region;

  Type type() const { return {stream->type().dtype, region.shape}; }
};

// Copies the elements to memory of the host that has their type and any strides.
void read_to(const StreamedRegion& from, const TensorView& to);

}  // namespace tessera::checkpoint
