#include "tessera/train/kept/keep_interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

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
  const int64_t copy_ns = cost_ns - std::exchange(cost_ns_, cost_ns);
  cheapest_ns_ = std::min(cheapest_ns_, copy_ns);
  const auto begin = [&] {
    begin_step_ = step;
    begin_ns_ = now_ns;
    cheapest_ns_ = std::numeric_limits<int64_t>::max();
  };
  if (num_kept_ <= kFirstCounted) begin();
  if (!is_time_to_agree(num_kept_)) return false;
  const double steps = static_cast<double>(std::max<int64_t>(1, step - begin_step_));
  const double step_ns = std::max(1.0, static_cast<double>(now_ns - begin_ns_) / steps);
  part_of_step_ = static_cast<double>(cheapest_ns_) / step_ns;
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  proposal_ = static_cast<int64_t>(std::clamp(std::ceil(part_of_step_ / kMostPart), 1.0, kMost));
  begin();
  return true;
}

void KeepInterval::agree(int64_t interval) { interval_ = interval; }

}  // namespace tessera::train
