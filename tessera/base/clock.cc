#include "tessera/base/clock.h"

#include <chrono>
#include <thread>

namespace tessera {
namespace {

class SystemClock : public Clock {
 public:
  int64_t monotonic_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  int64_t wall_ms() const override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  void sleep_ms(int64_t duration_ms) override { std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms)); }
};

}  // namespace

Clock& Clock::system() {
  static SystemClock clock;
  return clock;
}

int64_t FakeClock::monotonic_ns() const {
  const std::lock_guard lock(mutex_);
  return now_ms_ * 1'000'000;
}
int64_t FakeClock::wall_ms() const {
  const std::lock_guard lock(mutex_);
  return now_ms_;
}
void FakeClock::sleep_ms(int64_t duration_ms) {
  const std::lock_guard lock(mutex_);
  now_ms_ += duration_ms;
}

}  // namespace tessera
