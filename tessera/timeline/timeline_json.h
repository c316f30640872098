// The files of timelines: JSON in the form of trace events, which ui.perfetto.dev and chrome://tracing show. A rank's
// part and a job's timeline have one form (docs/timeline.md).
#pragma once

#include <string>
#include <string_view>

#include "tessera/timeline/rank_timeline.h"
#include "tessera/timeline/step_times.h"

namespace tessera::timeline {

// What one rank has recorded, by its own clock.
std::string part_json(const RankTimeline& part);
// A job's timeline: what the ranks have recorded, which rank was late in a collective and how long the others waited,
// the critical paths as a row of their own, and beside them what was predicted.
std::string job_json(const JobTimeline& job, const JobSteps& steps);

// Parses what these have written; of a part, a JobTimeline of one rank without clocks. Text of others is taken as it
// is. Throws InvalidArgument naming `file` and what is wrong: no JSON, no timeline of Tessera, numbers that cannot be.
JobTimeline parse_timeline(std::string_view text, const std::string& file);
// Parses a simulation that `tessera simulate --trace` has written. Throws InvalidArgument naming `file`.
std::vector<PredictedSpan> parse_predicted(std::string_view text, const std::string& file);

}  // namespace tessera::timeline
