// Arena: one rank's memory for everything that a step touches: parameters and states in front, then what schedules plan
// by lifetimes. Reserved once; grows only between steps, when a schedule that needs more is added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::executor {

class Arena {
 public:
  // Address space for `capacity_bytes`; memory is taken when it is first touched. `shared` is used instead of memory of
  // its own where it is given: as much address space, whose bytes other processes reach.
  explicit Arena(int64_t capacity_bytes, std::shared_ptr<void> shared = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int64_t capacity_bytes() const { return capacity_bytes_; }
  // The bytes that schedules use. Throws InvalidArgument beyond the capacity.
  int64_t size_bytes() const { return size_bytes_; }
  void grow_to(int64_t size_bytes);
  // Back to so many bytes: what lies behind them is forgotten and its memory returned. No schedule may use it.
  void shrink_to(int64_t size_bytes);

 private:
  // Has the shared memory up to `size_bytes` consist of huge pages, where the system has them.
  void back_shared(int64_t size_bytes);

  std::shared_ptr<void> shared_;
  int64_t backed_bytes_ = 0;  // of the shared memory
  std::byte* data_ = nullptr;
  int64_t capacity_bytes_ = 0;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::executor
