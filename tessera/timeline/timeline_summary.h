// What a timeline says in few words: where the time of a step went, which operators took it, which ranks were late, and
// what is worth doing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/timeline/rank_timeline.h"
#include "tessera/timeline/step_times.h"

namespace tessera::timeline {

// How long an operator of the network takes a step and rank, in the mean of all steps that count. On a device by its
// own clock, in the mean of those steps that it did operator by operator.
struct OperatorTime {
  std::string text;    // `matmul "fc"`
  std::string source;  // "fc"
  std::string kernel;
  std::string line;
  double seconds = 0;
  double calls = 0;
  double share = 0;                         // of the step
  double flops = 0;                         // of a call
  int64_t bytes = 0;                        // of a call
  std::optional<double> limit_seconds;      // what the machine could do it in
  std::optional<double> predicted_seconds;  // what a simulation says
};

// How long a collective takes, in the mean of all steps that count.
struct CollectiveTime {
  std::string text;
  int64_t bytes = 0;           // of a call
  double calls = 0;            // a step
  double seconds = 0;          // a step and member: from its call to its end
  double late_seconds = 0;     // a step and member: until the last member came
  int late_rank = 0;           // that came last most often
  double late_rank_share = 0;  // in so many of its calls
};

// What one rank had to do with the others. Its times are those of a step, in the mean.
struct RankTime {
  int rank = 0;
  std::string host;
  double step_seconds = 0;
  double waited_seconds = 0;      // for late ranks
  double waited_for_seconds = 0;  // by all others together, for this one
};

// Something that is worth doing.
struct Advice {
  std::string text;
  double seconds = 0;  // a step: what it may bring at most
};

struct TimelineSummary {
  int num_ranks = 0;  // of the job
  std::vector<int> missing_ranks;
  int64_t num_steps = 0;  // whole ones
  int64_t first_step = 0;
  int64_t last_step = 0;
  // Whole ones at the beginning that took several times as long as others, as they warm up. All others count: what
  // follows is of them alone.
  std::vector<int64_t> left_out_steps;
  double step_seconds = 0;  // the median, from the first rank's begin to the last one's end
  double slowest_step_seconds = 0;
  int64_t slowest_step = 0;
  double rank_step_seconds = 0;                     // the mean step of a rank
  std::array<double, kNumTimeUses> seconds{};       // of it, by TimeUse: together they make it up
  std::array<double, kNumTimeUses> path_seconds{};  // of the critical path of a step, in the mean
  std::vector<OperatorTime> operators;              // the longest first
  std::vector<CollectiveTime> collectives;          // the longest first
  std::vector<RankTime> ranks;
  std::optional<double> predicted_step_seconds;
  std::vector<Advice> advice;      // five at most, what may bring most first
  std::vector<std::string> notes;  // what is missing, and how far to trust it
};

// What the machine could compute a call of the operator in at best, in seconds.
using OperatorLimit = std::function<double(const SpanName& name)>;

// `limit` may be empty: operators then have no limit.
TimelineSummary summarise(const JobTimeline& job, const JobSteps& steps, const OperatorLimit& limit = {});

}  // namespace tessera::timeline
