// When to stop: asked within rounds, so that no step of the solver is longer than what lies between two questions.
#pragma once

#include <cstdint>
#include <limits>

#include "tessera/base/clock.h"

namespace tessera::solver {

class Deadline {
 public:
  // Never.
  Deadline() = default;
  // The clock must outlive it.
  Deadline(const Clock& clock, double seconds_from_now)
      : clock_(&clock), at_ns_(clock.monotonic_ns() + static_cast<int64_t>(1e9 * seconds_from_now)) {}

  bool is_over() const { return clock_ != nullptr && clock_->monotonic_ns() > at_ns_; }

 private:
  const Clock* clock_ = nullptr;
  int64_t at_ns_ = std::numeric_limits<int64_t>::max();
};
inline const Deadline kNoDeadline;

}  // namespace tessera::solver
