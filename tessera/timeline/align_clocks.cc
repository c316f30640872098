#include "tessera/timeline/align_clocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/timeline/meetings.h"

namespace tessera::timeline {
namespace {

void require_one_job(const std::vector<RankTimeline>& parts) {
  if (parts.empty()) throw InvalidArgument("a timeline needs the part of at least one rank");
  for (size_t i = 0; i < parts.size(); ++i) {
    const RecordedRank& rank = parts[i].rank;
    const RecordedRank& first = parts.front().rank;
    if (rank.size != first.size || rank.job != first.job) {
      throw InvalidArgument(
          "the parts are of different jobs: rank {} is of a job of {} ranks, \"{}\", rank {} of one of {}, \"{}\"",
          first.rank, first.size, printable(first.job), rank.rank, rank.size, printable(rank.job));
    }
    if (i > 0 && parts[i - 1].rank.rank == rank.rank) {
      throw InvalidArgument("there are two parts of rank {}; name each rank's once", rank.rank);
    }
  }
}

// What is added to a clock lies within.
struct Bounds {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
  bool are_set() const { return low > std::numeric_limits<int64_t>::min(); }
};

void shift(RankTimeline& part, int64_t offset_ns) {
  for (RecordedLane& lane : part.lanes) {
    if (lane.whole_from_ns != 0) lane.whole_from_ns += offset_ns;
    for (TimedSpan& span : lane.spans) {
      span.begin_ns += offset_ns;
      span.end_ns += offset_ns;
    }
  }
  part.clocks.steady_ns += offset_ns;
}

// What bounds the offset of `clock` to those ranks that are placed already.
Bounds bounds_of(const JobTimeline& job, const std::vector<Meeting>& meetings, const std::string& clock,
                 const std::map<std::string, int64_t>& placed) {
  Bounds bounds;
  const auto clock_of = [&](const MeetingMember& member) -> const std::string& {
    return job.ranks[member.rank].rank.clock;
  };
  for (const Meeting& meeting : meetings) {
    if (!meeting.meets) continue;
    for (const MeetingMember& own : meeting.members) {
      if (clock_of(own) != clock) continue;
      for (const MeetingMember& other : meeting.members) {
        const auto place = placed.find(clock_of(other));
        if (place == placed.end()) continue;
        // own.end + offset >= other.begin, and other.end >= own.begin + offset.
        bounds.low = std::max(bounds.low, other.begin_ns + place->second - own.end_ns);
        bounds.high = std::min(bounds.high, other.end_ns + place->second - own.begin_ns);
      }
    }
  }
  return bounds;
}

}  // namespace

JobTimeline align(std::vector<RankTimeline> parts) {
  std::ranges::sort(parts, {}, [](const RankTimeline& part) { return part.rank.rank; });
  require_one_job(parts);
  JobTimeline job;
  job.ranks = std::move(parts);
  const auto has_spans = [](const RankTimeline& part) { return part.is_written; };
  const auto first = std::ranges::find_if(job.ranks, has_spans);
  const RankTimeline& base = first == job.ranks.end() ? job.ranks.front() : *first;
  std::map<std::string, int64_t> placed{{base.rank.clock, 0}};
  job.clocks.push_back({.clock = base.rank.clock, .host = base.rank.host, .uncertainty_ns = 0, .by = "same"});
  const std::vector<Meeting> meetings = find_meetings(job);
  // Clocks that no collective joins with those that are placed may be joined by way of another one: they wait for it.
  std::vector<const RankTimeline*> left;
  for (const RankTimeline& part : job.ranks) {
    const auto is_same = [&](const RankTimeline* other) { return other->rank.clock == part.rank.clock; };
    if (!placed.contains(part.rank.clock) && std::ranges::none_of(left, is_same)) left.push_back(&part);
  }
  while (!left.empty()) {
    auto chosen = left.begin();
    Bounds bounds;
    for (auto at = left.begin(); at != left.end() && !bounds.are_set(); ++at) {
      bounds = bounds_of(job, meetings, (*at)->rank.clock, placed);
      if (bounds.are_set()) chosen = at;
    }
    const RankTimeline& part = **chosen;
    AlignedClock aligned{.clock = part.rank.clock, .host = part.rank.host, .by = "system"};
    if (bounds.are_set()) {
      aligned.offset_ns = bounds.low / 2 + bounds.high / 2 + (bounds.low % 2 + bounds.high % 2) / 2;
      aligned.uncertainty_ns = std::max(bounds.high, bounds.low) - aligned.offset_ns;
      aligned.by = "collectives";
    } else {
      const int64_t apart_ms = part.clocks.system_ms - base.clocks.system_ms;
      aligned.offset_ns = base.clocks.steady_ns + apart_ms * 1'000'000 - part.clocks.steady_ns;
    }
    placed[part.rank.clock] = aligned.offset_ns;
    job.clocks.push_back(aligned);
    left.erase(chosen);
  }
  for (RankTimeline& part : job.ranks) shift(part, placed.at(part.rank.clock));
  return job;
}

}  // namespace tessera::timeline
