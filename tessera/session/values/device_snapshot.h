// DeviceSnapshot: copies of values of a device as they are at one moment, made in the device's memory beside the next
// step, in a queue of their own. Whoever reads them waits for them on the device; who changes a value lets the device
// wait. One thread, that of the arena's queue, except where it says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/executor/arena.h"
#include "tessera/session/values/sliced_read.h"

namespace tessera::session {

class DeviceSnapshot {
 public:
  // Of values in the arena, which is a device's. The slices, through which the host reads the copies, and the arena
  // outlive it.
  DeviceSnapshot(executor::Arena& arena, TransferSlices& slices);
  // Waits for the copies.
  ~DeviceSnapshot();
  DeviceSnapshot(const DeviceSnapshot&) = delete;
  DeviceSnapshot& operator=(const DeviceSnapshot&) = delete;

  // Takes the memory for copies of these regions, which are SlicedReads' of values in the arena; that of an earlier
  // copy where it suffices. False where the device does not have it beside what steps may still need: then there is
  // none. Nobody may read the earlier copy any more.
  bool reserve(std::span<const checkpoint::StreamedRegion> regions);
  const Device& device() const { return *arena_.device(); }
  // The memory that is kept.
  int64_t size_bytes() const { return size_bytes_; }
  // Begins to copy these regions, as the arena's queue will have left them, and returns the copies. They were reserved
  // for.
  std::vector<checkpoint::StreamedRegion> begin(std::span<const checkpoint::StreamedRegion> regions);
  // Has what the arena's queue is given from now on come after the copies.
  void hold_changes();
  // Returns when the copies are done. Any thread.
  void synchronize();
  // In a child of fork(), which cannot use the device: nothing is under way.
  void forget() { may_be_copying_ = may_be_overtaken_ = false; }

 private:
  executor::Arena& arena_;
  TransferSlices& slices_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Event> updated_;  // all changes before the copies are done
  std::shared_ptr<Event> copied_;
  std::unique_ptr<Memory> memory_;
  int64_t size_bytes_ = 0;
  std::atomic<bool> may_be_copying_ = false;
  std::atomic<bool> may_be_overtaken_ = false;  // the arena's queue does not wait for the copies yet
};

}  // namespace tessera::session
