#include "tessera/comm/watched_wait.h"

#include <algorithm>

namespace tessera::comm {
namespace {

// A wait is known to others after kKnownMs and reported after kReportMs, both sooner where the deadline is near: a user
// who waits for a job that stands still looks for a reason after some seconds.
constexpr int64_t kKnownMs = 500;
constexpr int64_t kReportMs = 5000;
constexpr int64_t kReportsPerDeadline = 6;

}  // namespace

WatchedWait::~WatchedWait() {
  if (number_ != 0) job_.remove_long_wait(number_);
}

void WatchedWait::look(int64_t waited_ms) {
  const int64_t report_ms = std::min(kReportMs, timeout_ms_ / kReportsPerDeadline);
  if (waited_ms < std::min(kKnownMs, report_ms / 2) || is_reported_) return;
  const auto world_rank = [&](int rank) { return group_.ranks[static_cast<size_t>(rank)]; };
  const int own = world_rank(group_.rank);
  if (number_ == 0) number_ = job_.add_long_wait(own, place_of(call_, group_));
  if (waited_ms < report_ms) return;
  is_reported_ = true;
  LongWait wait{.rank = own, .place = place_of(call_, group_), .ranks = group_.ranks, .waited_ms = waited_ms};
  if (call_.kind == CallKind::kSend) wait.ranks = {own, world_rank(peer_)};
  job_.report_late(wait);
}

}  // namespace tessera::comm
