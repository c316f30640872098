// TransferSlices: a few pieces of the host's memory that copies to and from a device are fast with, and a queue of
// their own, so that values of any size cross beside computing, slice by slice, and take no more of the host's memory
// than that. Any number of threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tessera/tensor/device.h"

namespace tessera::session {

// Large enough for the full speed of the bus, and so many that reading, copying and writing go on at the same time with
// some to spare for who transfers beside that.
struct SliceSizes {
  int count = 4;
  int64_t bytes = int64_t{4} << 20;
};

class TransferSlices {
 public:
  // The device outlives them. They begin at whole elements: `sizes.bytes` is a multiple of 8.
  explicit TransferSlices(Device& device, const SliceSizes& sizes = {});
  // Waits for the copies that are under way.
  ~TransferSlices();
  TransferSlices(const TransferSlices&) = delete;
  TransferSlices& operator=(const TransferSlices&) = delete;

  int64_t slice_bytes() const { return sizes_.bytes; }

  struct Slice {
    std::byte* data = nullptr;
    std::unique_ptr<Event> copied;  // behind the copies that it was given last
  };
  struct GiveBack {
    TransferSlices* owner = nullptr;
    void operator()(Slice* slice) const { owner->give_back(slice); }
  };
  // A slice that is its holder's alone. It may go while copies are under way: who holds the slice next waits for them.
  using Held = std::unique_ptr<Slice, GiveBack>;
  // Waits until one is free. Who holds one already takes another by try_take() only, so that nobody waits for himself.
  Held take();
  // Null: none is free.
  Held try_take();

  // Bytes of the device's memory and where they are in the slice.
  struct Piece {
    std::byte* there = nullptr;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  // These begin to copy; the slice's event tells when they are done. Throw IoError where the device does not take it.
  void read(Slice& slice, std::span<const Piece> pieces);
  void write(Slice& slice, std::span<const Piece> pieces);
  // Later copies come after the place where the event is now.
  void wait(Event& event);
  // Returns when all copies are done that have begun.
  void synchronize();

 private:
  void give_back(Slice* slice);

  SliceSizes sizes_;
  std::shared_ptr<std::byte> memory_;
  std::vector<Slice> slices_;
  std::mutex free_mutex_;
  std::condition_variable is_free_;
  std::deque<Slice*> free_;
  std::mutex queue_mutex_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace tessera::session
