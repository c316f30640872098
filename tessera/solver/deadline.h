// When to stop: asked within rounds, so that no step of the solver is longer than what lies between two questions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/base/clock.h"

namespace tessera::solver {

class Deadline {
 public:
  // Never.
  Deadline() = default;
  // The clock must outlive it. After more seconds than a clock counts, infinity among them: never.
  Deadline(const Clock& clock, double seconds_from_now)
      : clock_(&clock), at_ns_(instant_after(clock.monotonic_ns(), seconds_from_now)) {}

  bool is_over() const { return clock_ != nullptr && clock_->monotonic_ns() > at_ns_; }

 private:
  static int64_t instant_after(int64_t now_ns, double seconds) {
    constexpr double kNever = 4e9;  // seconds, 126 years: with what a clock shows already below 2^63 ns
    if (seconds >= kNever) return std::numeric_limits<int64_t>::max();
    return now_ns + static_cast<int64_t>(1e9 * std::max(seconds, 0.0));
  }

  const Clock* clock_ = nullptr;
  int64_t at_ns_ = std::numeric_limits<int64_t>::max();
};
inline const Deadline kNoDeadline;

}  // namespace tessera::solver
