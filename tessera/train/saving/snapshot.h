// Snapshot: a copy of values as they are at one moment, made while training goes on, in memory that is kept from one
// copy to the next.
//
// begin() says what is to be copied. From then on a thread in the background copies slice by slice, and whoever is
// about to change a value calls finish() for it first, which copies what is left of that value. Threads share the
// slices, so that no one waits for work that nobody does.
//
// In a child of fork() nothing is copied: its parent copies what is left, maybe to memory that both see.
//
// Values on a device are copied within its memory, in a queue of the device's (session/values/device_snapshot.h): there
// finish() lets the device wait, and nothing is copied by threads.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/files/scratch_file.h"
#include "tessera/base/parallel_for.h"
#include "tessera/checkpoint/format/element_stream.h"
#include "tessera/checkpoint/threads/copy_views.h"
#include "tessera/tensor/tensor.h"

namespace tessera::session {
class DeviceSnapshot;
}

namespace tessera::train {

class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // New memory lies in such a file: where the values themselves do not fit into memory.
  void lie_in(const ScratchFile& file) { file_ = file; }
  // Where values on a device are copied.
  void lie_on(std::shared_ptr<session::DeviceSnapshot> device) { on_device_ = std::move(device); }
  bool lies_on_device() const { return on_device_ != nullptr; }
  // Memory for copies of these regions of values on the device. False where it has no room for them, which is logged
  // once: then the caller reads them to the host before they change.
  bool reserve_on_device(std::span<const checkpoint::StreamedRegion> regions);
  // Begins to copy them, as they are when the work is done that the device has been given, and returns the copies. No
  // value may change before finish() was called for it.
  std::vector<checkpoint::StreamedRegion> begin_on_device(std::span<const checkpoint::StreamedRegion> regions);

  // Memory for dense values of these types, one after another; that of an earlier copy where it suffices. New memory is
  // taken at once, not when it is first written to. Nobody may read the earlier copy any more.
  std::vector<Tensor> allocate(std::span<const Type> types);
  // The memory that is kept, of the host's and of the device's.
  int64_t size_bytes() const { return size_bytes_; }
  int64_t device_bytes() const;

  // The background goes by the order of the copies. The copy before must be finished. No value of `from` may change
  // before finish() was called for it.
  void begin(std::span<const checkpoint::ViewCopy> copies);
  // Returns when every slice that lies in `changed` is copied, by `threads` of the caller's and the one in the
  // background. Any thread. What a device copies is done before the work that its arena's queue is given from now on;
  // only the thread of that queue calls it then.
  void finish(const TensorView& changed, const ParallelFor& threads = ParallelFor(1));
  // Returns when all is copied. Any thread.
  void finish();
  // Does the same for the thread in the background.
  void finish_in_background();
  // What all threads together have computed to copy, since this was made.
  int64_t cpu_ns() const { return cpu_ns_; }
  // In a child of fork(), whose parent has the thread that makes it: there is none.
  void forget();
  // Another copy of the same values, in the host's memory: who finishes this one finishes that one, too, but for the
  // thread in the background. nullptr: there is none any more.
  void set_beside(Snapshot* other) { beside_ = other; }
  // Off: that thread copies nothing and waits, so that all is copied at the last moment. Tests use it, for the copy
  // beside this one, too.
  void set_copies_in_background(bool on) {
    copies_in_background_ = on;
    if (beside_ != nullptr) beside_->set_copies_in_background(on);
  }

 private:
  enum State : uint8_t { kWaiting, kTaken, kDone };
  struct Slice {
    checkpoint::ViewCopy copy;
    std::atomic<State> state = kWaiting;
  };
  // The addresses of a slice; those of two slices do not overlap.
  struct Extent {
    const std::byte* begin;
    const std::byte* end;
    Slice* slice;
  };
  bool is_under_way();
  void finish_slices();
  void copy(Slice& slice);

  std::shared_ptr<session::DeviceSnapshot> on_device_;
  bool no_room_said_ = false;  // on the device
  std::optional<ScratchFile> file_;
  std::shared_ptr<void> memory_;
  int64_t size_bytes_ = 0;
  std::unique_ptr<Slice[]> slices_;
  size_t num_slices_ = 0;
  std::vector<Extent> places_;  // by address
  std::atomic<size_t> num_left_ = 0;
  std::atomic<int64_t> cpu_ns_ = 0;
  pid_t process_ = -1;  // that has begun it
  bool copies_in_background_ = true;
  Snapshot* beside_ = nullptr;
};

}  // namespace tessera::train
