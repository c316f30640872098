// RankTimeline: what one rank has recorded. JobTimeline: what all ranks of a job have, on one clock. Data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/timeline/span.h"
#include "tessera/timeline/timeline_options.h"

namespace tessera::timeline {

// Who has recorded.
struct RecordedRank {
  int rank = 0;
  int size = 1;
  int64_t pid = 0;
  std::string host = {};
  // Equal for ranks whose monotonic clocks are one: that of one boot of one machine.
  std::string clock = {};
  std::string job = {};
};

// Both clocks of a rank, looked at together.
struct ClockPair {
  int64_t steady_ns = 0;
  int64_t system_ms = 0;
};

// What one thread, or one stream of a device, has done.
struct RecordedLane {
  std::string title;
  int64_t num_dropped = 0;    // spans, the oldest ones, for which there was no room
  int64_t whole_from_ns = 0;  // what begins then or later is whole
  std::vector<TimedSpan> spans;
};

struct RankTimeline {
  RecordedRank rank;
  ClockPair clocks;
  TracedSteps steps;
  bool is_written = false;   // the rank has come to write its spans
  std::string failure = {};  // why it could not write them; "": it could, or has not come to it
  std::vector<SpanName> names = {};
  // The first one is that of the thread that makes the rank's calls; its spans are nested, those of others are not.
  std::vector<RecordedLane> lanes = {};
};

// When the first span of all ranks begins; 0 where they have none.
int64_t origin_ns(std::span<const RankTimeline> ranks);
// The places of a lane's spans, from the first to the last; what holds others comes before them.
std::vector<size_t> nested_order(const std::vector<SpanName>& names, const std::vector<TimedSpan>& spans);

// How the clock of ranks that share one was brought to that of the first rank's.
struct AlignedClock {
  std::string clock;
  std::string host;  // of its first rank
  int64_t offset_ns = 0;
  // The offset may be wrong by so much, either way; unknown where the system's clocks had to do.
  std::optional<int64_t> uncertainty_ns = {};
  // "same" for the first rank's clock, "collectives", or "system" where no collective that both took part in is there.
  std::string by;
};

// A span of a simulation (`tessera simulate --trace`), or of another trace that is shown beside the job.
struct PredictedSpan {
  std::string name;
  std::string source;  // where in the network it is
  int process = 0;
  int lane = 0;
  int64_t begin_ns = 0;  // from the beginning of the step
  int64_t end_ns = 0;
};

struct JobTimeline {
  std::vector<RankTimeline> ranks;   // by rank; their spans are on the first one's clock
  std::vector<AlignedClock> clocks;  // empty for a part, which was not aligned
  std::vector<PredictedSpan> predicted;

  int size() const { return ranks.empty() ? 0 : ranks.front().rank.size; }
  // Of the job, of which there is no part, or one without spans.
  std::vector<int> missing_ranks() const;
  int64_t num_dropped() const;
  int64_t origin_ns() const { return timeline::origin_ns(ranks); }
};

}  // namespace tessera::timeline
