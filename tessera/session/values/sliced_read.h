// SlicedRead: a value in a device's memory, as the host reads it: slice by slice, the next one on its way while one is
// handed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/checkpoint/format/element_stream.h"
#include "tessera/session/values/transfer_slices.h"

namespace tessera::session {

// A stretch of the bytes of a value, which is dense and row-major.
struct ValueStretch {
  int64_t first = 0;
  int64_t bytes = 0;
};
// Reaches from the first to the last element of a region of a value of that type. The region has elements.
ValueStretch stretch_of_region(const Type& type, const checkpoint::Region& region);

class SlicedRead final : public checkpoint::ElementStream {
 public:
  struct Source {
    std::byte* there = nullptr;  // in the device's memory, dense and row-major
    Type type;
    int64_t first_byte = 0;        // of the value, which is at `there`: where only a part of it lies there
    std::shared_ptr<Event> after;  // reading comes after its place; null: after nothing
  };
  // The slices and what is read outlive it.
  SlicedRead(TransferSlices& slices, Source source) : slices_(slices), source_(std::move(source)) {}

  const Type& type() const override { return source_.type; }
  void read(const checkpoint::Region& region, Sink sink) const override;
  // Where a byte of the value lies in the device's memory.
  std::byte* address_of(int64_t byte) const { return source_.there + (byte - source_.first_byte); }

 private:
  TransferSlices& slices_;
  Source source_;
};

}  // namespace tessera::session
