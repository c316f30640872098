// When to stop: asked within whatever may take long, so that nothing lasts longer than what lies between two questions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"

namespace tessera {

// Thrown by what has no answer yet when its time is over; whoever has set the deadline catches it.
class DeadlineOver : public Error {
 public:
  using Error::Error;
};

// Thrown by what was told to stop: nobody waits for its answer any more.
class Stopped : public Error {
 public:
  Stopped() : Error("stopped: nobody waits for the answer any more") {}
};

class Deadline {
 public:
  // This deadline is never over.
  Deadline() = default;
  // The clock must outlive it. After more seconds than a clock counts, infinity among them: never.
  Deadline(const Clock& clock, double seconds_from_now)
      : clock_(&clock), at_ns_(instant_after(clock.monotonic_ns(), seconds_from_now)) {}
  // As options say it: 0 seconds are no deadline.
  static Deadline of_timeout(const Clock& clock, double timeout_seconds) {
    return timeout_seconds > 0 ? Deadline(clock, timeout_seconds) : Deadline();
  }

  // The same, and over as soon as `*stop` is true, which any thread may make it; null: only time counts.
  Deadline until(const std::atomic<bool>* stop) const {
    Deadline made = *this;
    made.stop_ = stop;
    return made;
  }
  // Over only when it is stopped.
  Deadline without_time() const { return Deadline().until(stop_); }

  bool is_over() const { return is_stopped() || (clock_ != nullptr && clock_->monotonic_ns() > at_ns_); }
  bool is_stopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }
  void throw_if_stopped() const {
    if (is_stopped()) throw Stopped();
  }
  void throw_if_over() const {
    throw_if_stopped();
    if (is_over()) throw DeadlineOver("the time that was given is over");
  }
  // Infinity where there is none; negative once it is over.
  double seconds_left() const {
    if (clock_ == nullptr) return std::numeric_limits<double>::infinity();
    return 1e-9 * static_cast<double>(at_ns_ - clock_->monotonic_ns());
  }

 private:
  static int64_t instant_after(int64_t now_ns, double seconds) {
    constexpr double kNever = 4e9;  // seconds, 126 years: with what a clock shows already below 2^63 ns
    if (seconds >= kNever) return std::numeric_limits<int64_t>::max();
    return now_ns + static_cast<int64_t>(1e9 * std::max(seconds, 0.0));
  }

  const Clock* clock_ = nullptr;
  const std::atomic<bool>* stop_ = nullptr;
  int64_t at_ns_ = std::numeric_limits<int64_t>::max();
};
inline const Deadline kNoDeadline;

}  // namespace tessera
