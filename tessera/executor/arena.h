// Arena: one rank's memory for everything that a step touches: parameters and states in front, then what schedules plan
// by lifetimes. Reserved once; grows only between steps, when a schedule that needs more is added. It is the host's, or
// a device's: then what works in it goes through queue(), and the host does not look at data().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/base/files/scratch_file.h"
#include "tessera/base/parallel_for.h"
#include "tessera/executor/update_gate.h"
#include "tessera/tensor/device.h"

namespace tessera::executor {

// What of an arena is memory by now.
struct ArenaMemory {
  int64_t resident_bytes = 0;
  int64_t huge_page_bytes = 0;  // the part of these in huge pages; 0 where the system has none or they are switched off
  // On a device: what of its memory nobody uses, this process or another, where the device can tell.
  std::optional<int64_t> free_bytes = std::nullopt;
};

class Arena {
 public:
  // Address space for `capacity_bytes`, from a huge page's boundary on; memory is taken when it is first touched, in
  // huge pages where the system has them. `shared` is used instead of memory of its own where it is given: as much
  // address space, whose bytes other processes reach.
  explicit Arena(int64_t capacity_bytes, std::shared_ptr<void> shared = nullptr);
  // The same of this process alone, whose limit (ulimit -d) counts what grow_to() has asked for: an arena that may
  // spill().
  struct MaySpill {};
  Arena(int64_t capacity_bytes, MaySpill);
  // Memory of the device, which outlives the arena.
  Arena(int64_t capacity_bytes, Device& device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  // Null: the host.
  Device* device() const { return device_; }
  // In which all work on the arena is done.
  Queue& queue() const { return own_queue_ != nullptr ? *own_queue_ : host_queue(); }
  // Of steps on a device, which look at it in that queue; null: the host.
  UpdateGate* gate() const { return gate_.get(); }
  int64_t capacity_bytes() const { return capacity_bytes_; }
  // The bytes that schedules use. Throws InvalidArgument beyond the capacity.
  int64_t size_bytes() const { return size_bytes_; }
  void grow_to(int64_t size_bytes);
  // From now on the first bytes of an arena that has none yet lie in that file, whose pages the system writes there and
  // reads again as it likes. A whole number of pages. Throws IoError where the file's disk has no room, InvalidArgument
  // where the arena has fewer bytes of address space.
  void spill(const ScratchFile& file, int64_t bytes);
  int64_t spilled_bytes() const { return spilled_bytes_; }
  // Back to so many bytes, those that are spilled among them: what lies behind them is forgotten and its memory
  // returned. No schedule may use it.
  void shrink_to(int64_t size_bytes);
  // Takes the memory of these bytes now, each thread its part, so that it lies near the threads that will work on it
  // and no step waits for it. What is there stays. Does nothing on a device.
  void touch(int64_t offset, int64_t bytes, const ParallelFor& parallel_for);
  // The memory as the system counts it; of a device's all that is used.
  ArenaMemory memory() const;

 private:
  // Has the shared memory up to `size_bytes` consist of huge pages, where the system has them.
  void back_shared(int64_t size_bytes);
  // Has the address space up to `size_bytes` become memory, of an arena that may spill.
  void open_up_to(int64_t size_bytes);

  Device* device_ = nullptr;
  std::unique_ptr<Memory> device_memory_;
  std::unique_ptr<UpdateGate> gate_;
  std::unique_ptr<Queue> own_queue_;
  std::shared_ptr<void> shared_;
  int64_t backed_bytes_ = 0;  // how much of the shared memory is backed
  bool may_spill_ = false;
  int64_t open_bytes_ = 0;     // of an arena that may spill: may be read and written
  int64_t spilled_bytes_ = 0;  // the first ones, which lie in a file
  void* reserved_ = nullptr;   // begins up to a huge page before data_
  std::byte* data_ = nullptr;
  int64_t capacity_bytes_ = 0;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::executor
