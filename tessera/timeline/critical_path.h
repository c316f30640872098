// The critical path of a step: from its end back to its begin, always to what was waited for last.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/timeline/meetings.h"
#include "tessera/timeline/rank_timeline.h"

namespace tessera::timeline {

struct PathPiece;
struct JobStep;

// MeetingEnds finds what has ended a wait. Both that it is made of outlive it.
class MeetingEnds {
 public:
  MeetingEnds(const JobTimeline& job, const std::vector<Meeting>& meetings);
  // The meeting whose end on this rank has ended a wait from `begin_ns` to `end_ns`: the last one that ended within;
  // null where none did.
  const Meeting* that_ended(size_t rank, int64_t begin_ns, int64_t end_ns) const;
  // The meeting that this member's lane was busy with right before it; null where it was idle.
  const Meeting* right_before(const MeetingMember& member) const;

 private:
  struct End {
    int64_t end_ns = 0;
    size_t lane = 0;
    const Meeting* meeting = nullptr;
  };
  std::vector<std::vector<End>> by_rank_;  // each by end
};

// Waits for a rank that is late lead to that rank, others to who has begun the collective last. The pieces follow on
// one another and end where the last rank's step does.
std::vector<PathPiece> find_critical_path(const JobTimeline& job, const JobStep& step, const MeetingEnds& ends);

}  // namespace tessera::timeline
