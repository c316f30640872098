// Brings the parts of a job's ranks to one clock.
#pragma once

#include <vector>

#include "tessera/timeline/rank_timeline.h"

namespace tessera::timeline {

// The ranks' parts as one timeline, by rank, on the clock of the lowest rank that has spans. Ranks that share a
// monotonic clock need nothing. Clocks of different hosts are brought together by collectives in which ranks of both
// took part: no member can end before the last one has begun, so each such collective bounds the offset from both
// sides; the middle of what is left is taken. Where there is none, by the system's clocks. Throws InvalidArgument for
// no part, two of one rank, and parts of jobs that differ in size or name.
JobTimeline align(std::vector<RankTimeline> parts);

}  // namespace tessera::timeline
