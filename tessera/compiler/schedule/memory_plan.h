// Memory of a schedule while it is being made: buffers, alive from the first to the last step that touches a value in
// them, and where in them the values lie. When all steps are known each buffer gets its offset in the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/compiler/schedule/pack.h"
#include "tessera/ir/schedule.h"

namespace tessera::compiler {

struct Buffer {
  int64_t bytes = 0;
  int first = std::numeric_limits<int>::max();  // steps between which it is alive
  int last = -1;
  int64_t offset = -1;  // >= 0: fixed
  bool persistent = false;
  bool data_input = false;
  std::vector<int> values;  // that lie in it
};

// What the buffers that are not persistent take.
struct MemoryUse {
  int64_t end = 0;         // the end of the last of them
  int64_t peak_bytes = 0;  // alive at once, at peak_step
  int peak_step = 0;
};

class MemoryPlan {
 public:
  struct Address {
    int buffer = -1;
    int64_t at = 0;  // bytes from the buffer's start
  };

  // Buffers and values are numbered from 0. The size is rounded up to the alignment.
  int add_buffer(int64_t bytes);
  // The next value, `at` bytes from the start of the buffer.
  int add_value(int buffer, int64_t at);

  const Address& place(int value) const { return places_[static_cast<size_t>(value)]; }
  const Buffer& buffer(int index) const { return buffers_[static_cast<size_t>(index)]; }
  Buffer& mutable_buffer(int index) { return buffers_[static_cast<size_t>(index)]; }
  const Buffer& buffer_of(int value) const { return buffer(place(value).buffer); }

  // The value's buffer is alive at that step.
  void touch(int value, int step);
  // All values of `from` lie in `to` from now on, `at` bytes from where they were; nothing is left in `from`.
  void move_buffer(int from, int to, int64_t at);

  // Gives the buffers that have none an offset from `base` on: with `share`, those that are never alive together may
  // have the same memory, which lies idle for `idle_steps` between the two.
  MemoryUse assign_offsets(int64_t base, int num_steps, bool share, int idle_steps = 0);
  int64_t offset(int value) const { return buffer_of(value).offset + place(value).at; }
  // The blocks that are not persistent and that a step touches, with their offsets.
  std::vector<ir::MemoryBlock> blocks() const;

 private:
  static bool is_planned(const Buffer& buffer);

  std::vector<Buffer> buffers_;
  std::vector<Address> places_;  // by value
};

}  // namespace tessera::compiler
