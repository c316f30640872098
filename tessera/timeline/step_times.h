// What the ranks did in the steps of a timeline, second by second, and the critical path of each step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/timeline/meetings.h"
#include "tessera/timeline/rank_timeline.h"

namespace tessera::timeline {

// What a rank's own thread does at a moment of a step.
enum class TimeUse : uint8_t {
  kCompute,      // runs kernels
  kCopy,         // copies between layouts or memories
  kLateRank,     // waits for a collective or a message that another rank has not come to
  kTransfer,     // waits for one to which all have come
  kDevice,       // waits for its device
  kBatch,        // waits for the next batch, or copies it
  kCallbacks,    // of the training
  kSave,         // of a checkpoint
  kEvaluation,   // all that is done in one
  kCompilation,  // of a step
  kOther         // between these: the engine, the script
};
inline constexpr size_t kNumTimeUses = 11;
// "compute", "late rank"
const char* to_string(TimeUse use);

// A stretch of a step in which a rank did one thing.
struct UsedTime {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  TimeUse use = TimeUse::kOther;
  int span = -1;  // of the rank's main lane; -1: none is as long
  int64_t duration_ns() const { return end_ns - begin_ns; }
};

// What one rank does in a step: the stretches follow on one another and make up the step.
struct RankStep {
  size_t rank = 0;  // its place in the JobTimeline
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<UsedTime> times = {};
  // How long it has waited for each rank, by that one's place.
  std::map<size_t, int64_t> waited_for = {};
};

// A stretch of the critical path: had it been shorter, so had been the step.
struct PathPiece {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  size_t rank = 0;  // its place in the JobTimeline
  TimeUse use = TimeUse::kOther;
  std::string what;  // `matmul "fc"`
  int span = -1;     // of the rank's main lane; -1: it is none
  int64_t duration_ns() const { return end_ns - begin_ns; }
};

struct JobStep {
  int64_t step = 0;
  std::vector<RankStep> ranks;
  std::vector<PathPiece> path;  // in order, without gaps; it ends where the last rank's step does

  int64_t begin_ns() const;     // the first rank's
  int64_t duration_ns() const;  // from the first rank's begin to the last one's end
};

struct JobSteps {
  // Those that all ranks with spans have recorded whole.
  std::vector<JobStep> steps;
  std::vector<Meeting> meetings;
  // What should not be: spans of a main lane that cross, and collectives that a rank has ended before another one
  // began.
  int64_t num_crossed = 0;
  int64_t num_ended_early = 0;
};

JobSteps find_steps(const JobTimeline& job);

}  // namespace tessera::timeline
