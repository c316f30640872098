// Time, passed in so that tests can move it.
#pragma once

#include <cstdint>
#include <mutex>

namespace tessera {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since some fixed point; never goes back.
  virtual int64_t monotonic_ns() const = 0;
  // Returns the milliseconds since 1970-01-01 UTC.
  virtual int64_t wall_ms() const = 0;
  virtual void sleep_ms(int64_t duration_ms) = 0;

  static Clock& system();
};

// Stands still until told; sleep_ms moves it.
class FakeClock : public Clock {
 public:
  int64_t monotonic_ns() const override;
  int64_t wall_ms() const override;
  void sleep_ms(int64_t duration_ms) override;

 private:
  mutable std::mutex mutex_;
  int64_t now_ms_ = 1'000'000;
};

}  // namespace tessera
