#include "tessera/train/kept/keep_interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::train {
namespace {

// The two versions of the memory are new until then: to write to new pages takes longer.
constexpr int64_t kFirstCounted = 2;
// Ranks agree anew after 4, 8, 16, ... copies, and then after so many.
constexpr int64_t kMostBetween = 256;

bool is_time_to_agree(int64_t num_kept) {
  if (num_kept <= kFirstCounted) return false;
  return num_kept % kMostBetween == 0 || std::has_single_bit(static_cast<uint64_t>(num_kept));
}

}  // namespace

KeepInterval::KeepInterval(int64_t steps) : steps_(steps) {}

bool KeepInterval::is_due(int64_t step) const {
  if (!is_automatic()) return step % steps_ == 0;
  return newest_ < 0 || step - newest_ >= interval_;
}

bool KeepInterval::note_kept(int64_t step, int64_t now_ns, int64_t cost_ns) {
  if (!is_automatic()) return false;
  newest_ = step;
  ++num_kept_;
  const Mark here{num_kept_, step, now_ns, cost_ns};
  if (num_kept_ <= kFirstCounted) mark_ = here;
  if (!is_time_to_agree(num_kept_)) return false;
  const double steps = static_cast<double>(std::max<int64_t>(1, step - mark_.step));
  const double step_ns = std::max(1.0, static_cast<double>(now_ns - mark_.now_ns) / steps);
  const double copy_ns = static_cast<double>(cost_ns - mark_.cost_ns) / static_cast<double>(num_kept_ - mark_.num_kept);
  part_of_step_ = copy_ns / step_ns;
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  proposal_ = static_cast<int64_t>(std::clamp(std::ceil(part_of_step_ / kMostPart), 1.0, kMost));
  mark_ = here;
  return true;
}

void KeepInterval::agree(int64_t interval) { interval_ = interval; }

}  // namespace tessera::train
