#include "tessera/cluster/report/slow_ranks.h"

#include <algorithm>
#include <map>

namespace tessera::cluster {
namespace {

// A rank is slow that costs another one two fifths of its time, by itself most of what that one waits at all, and does
// so three windows in a row: less is the noise of a machine that others use, too.
constexpr int kSlowPercent = 40;
constexpr int kWindows = 3;

}  // namespace

std::optional<SlowRank> SlowRanks::add(int own, const std::vector<comm::WaitTime>& times, int64_t window_ms) {
  warning_.reset();
  std::map<int, int64_t> waited_ms;
  int64_t all_ms = 0;
  for (const comm::WaitTime& time : times) {
    waited_ms[time.peer] += time.waited_ms;
    all_ms += time.waited_ms;
  }
  const auto most = std::ranges::max_element(waited_ms, {}, [](const auto& one) { return one.second; });
  if (most == waited_ms.end() || window_ms <= 0) {
    slow_ = warned_of_ = -1;
    return std::nullopt;
  }
  const comm::WaitTime* longest = nullptr;
  for (const comm::WaitTime& time : times) {
    if (time.peer == most->first && (longest == nullptr || time.waited_ms > longest->waited_ms)) longest = &time;
  }
  SlowRank found{.rank = most->first,
                 .percent = static_cast<int>(std::min<int64_t>(100, 100 * most->second / window_ms)),
                 .call = longest->call};
  const bool is_slow = found.percent >= kSlowPercent && 2 * most->second > all_ms;
  num_windows_ = is_slow && slow_ == found.rank ? num_windows_ + 1 : is_slow ? 1 : 0;
  slow_ = is_slow ? found.rank : -1;
  if (!is_slow) warned_of_ = -1;
  if (num_windows_ >= kWindows && warned_of_ != slow_) {
    warned_of_ = slow_;
    if (longest->first_waiting == own) warning_ = found;
  }
  return found;
}

}  // namespace tessera::cluster
