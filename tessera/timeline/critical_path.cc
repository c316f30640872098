#include "tessera/timeline/critical_path.h"

#include <algorithm>

#include "tessera/timeline/step_times.h"

namespace tessera::timeline {
namespace {

// Between the end of a collective and whoever has waited for it, a thread wakes up.
constexpr int64_t kWakeNs = 50'000;

const UsedTime* time_before(const RankStep& rank, int64_t at_ns) {
  const auto behind = std::ranges::lower_bound(rank.times, at_ns, {}, &UsedTime::begin_ns);
  return behind == rank.times.begin() ? nullptr : &*(behind - 1);
}

std::string what_of(const RankTimeline& rank, const UsedTime& time) {
  if (time.span < 0) return "between spans";
  return rank.names[rank.lanes.front().spans[static_cast<size_t>(time.span)].name].text;
}

}  // namespace

MeetingEnds::MeetingEnds(const JobTimeline& job, const std::vector<Meeting>& meetings) : by_rank_(job.ranks.size()) {
  for (const Meeting& meeting : meetings) {
    for (const MeetingMember& member : meeting.members) {
      by_rank_[member.rank].push_back({member.end_ns, member.lane, &meeting});
    }
  }
  for (auto& ends : by_rank_) std::ranges::sort(ends, {}, &End::end_ns);
}

const Meeting* MeetingEnds::that_ended(size_t rank, int64_t begin_ns, int64_t end_ns) const {
  const auto& ends = by_rank_[rank];
  const auto behind = std::ranges::upper_bound(ends, end_ns, {}, &End::end_ns);
  if (behind == ends.begin() || (behind - 1)->end_ns <= begin_ns) return nullptr;
  return (behind - 1)->meeting;
}

const Meeting* MeetingEnds::right_before(const MeetingMember& member) const {
  const auto& ends = by_rank_[member.rank];
  auto behind = std::ranges::upper_bound(ends, member.begin_ns, {}, &End::end_ns);
  for (; behind != ends.begin() && (behind - 1)->end_ns > member.begin_ns - kWakeNs; --behind) {
    if ((behind - 1)->lane == member.lane) return (behind - 1)->meeting;
  }
  return nullptr;
}

std::vector<PathPiece> find_critical_path(const JobTimeline& job, const JobStep& step, const MeetingEnds& ends) {
  const RankStep* at = &*std::ranges::max_element(step.ranks, {}, &RankStep::end_ns);
  int64_t now_ns = at->end_ns;
  std::vector<PathPiece> path;
  const auto rank_step = [&](size_t rank) -> const RankStep* {
    const auto found = std::ranges::find(step.ranks, rank, &RankStep::rank);
    return found == step.ranks.end() ? nullptr : &*found;
  };
  const auto add = [&](PathPiece piece) {
    now_ns = piece.begin_ns;
    if (piece.begin_ns < piece.end_ns) path.push_back(std::move(piece));
  };
  while (now_ns > at->begin_ns) {
    const UsedTime* time = time_before(*at, now_ns);
    if (time == nullptr) break;
    const bool waits = time->use == TimeUse::kLateRank || time->use == TimeUse::kTransfer;
    const Meeting* met = nullptr;
    if (waits) {
      // The two stretches of a wait end at its end.
      const TimedSpan& wait = job.ranks[at->rank].lanes.front().spans[static_cast<size_t>(time->span)];
      met = ends.that_ended(at->rank, wait.begin_ns, wait.end_ns);
    }
    bool has_left = false;
    while (met != nullptr && met->last_begin_ns() < now_ns) {
      const MeetingMember& late = met->members[met->late];
      const RankStep* there = rank_step(late.rank);
      if (there == nullptr || late.begin_ns < there->begin_ns) break;
      add({.begin_ns = late.begin_ns,
           .end_ns = now_ns,
           .rank = at->rank,
           .use = TimeUse::kTransfer,
           .what = met->text});
      at = there;
      has_left = true;
      // A lane that was busy until then has kept the late rank from being earlier.
      met = ends.right_before(late);
    }
    if (has_left) continue;
    add({.begin_ns = time->begin_ns,
         .end_ns = now_ns,
         .rank = at->rank,
         .use = time->use,
         .what = what_of(job.ranks[at->rank], *time),
         .span = time->span});
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace tessera::timeline
