// Meetings: the collectives and messages of a job, each with the spans of all its members.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/timeline/rank_timeline.h"

namespace tessera::timeline {

// Says which span a member has of a meeting, by places in the JobTimeline.
struct MeetingMember {
  size_t rank = 0;
  size_t lane = 0;
  size_t span = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Shorter waits for the late member have no arrow: there are thousands.
inline constexpr int64_t kShownWaitNs = 50'000;

struct Meeting {
  std::string text;  // `all_reduce "fc.weight"`
  SpanKind kind = SpanKind::kCollective;
  int64_t step = 0;
  int64_t bytes = 0;                   // of the whole call: the most that a member knows of
  bool meets = false;                  // no member can end before the last one has begun
  bool is_complete = false;            // all of its ranks have a span
  std::vector<MeetingMember> members;  // by rank
  size_t late = 0;                     // the member that began last

  int64_t last_begin_ns() const { return members[late].begin_ns; }
  // How long the member has waited for the late one.
  int64_t waited_ns(const MeetingMember& member) const;
};

// All of them that have at least one span, in the order in which they began.
std::vector<Meeting> find_meetings(const JobTimeline& job);

}  // namespace tessera::timeline
