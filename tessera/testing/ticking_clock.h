// TickingClock: time that passes from question to question, whatever the machine.
#pragma once

#include <atomic>
#include <cstdint>

#include "tessera/base/clock.h"

namespace tessera {

class TickingClock : public Clock {
 public:
  explicit TickingClock(int64_t tick_ns) : tick_ns_(tick_ns) {}
  int64_t monotonic_ns() const override { return tick_ns_ * ++num_questions_; }
  int64_t wall_ms() const override { return 0; }
  void sleep_ms(int64_t) override {}
  int64_t num_questions() const { return num_questions_; }
  // What the latest question was told.
  double seconds() const { return 1e-9 * static_cast<double>(tick_ns_ * num_questions_); }

 private:
  int64_t tick_ns_;
  mutable std::atomic<int64_t> num_questions_ = 0;  // questions come from several threads
};

}  // namespace tessera
