// The way in: a schedule for a pipelined step, by name or searched, with a proof of how good it is.
//
//     auto found = find_schedule(problem);            // "auto"
//     auto found = find_schedule(problem, "1f1b");    // a schedule of that name
//     found.makespan_ns, found.bound.ns               // no schedule takes less than the bound
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/pipeline/pipeline_schedule.h"
#include "tessera/pipeline/search/lower_bound.h"

namespace tessera::pipeline {

struct FindOptions {
  // "auto" ends when it meets the bound, or has placed so many phases, trials included. Equal problems, efforts and
  // seeds have equal schedules, whatever the machine.
  int64_t effort = 1'500'000;
  uint64_t seed = 0;
};

struct FoundSchedule {
  PipelineSchedule schedule;
  std::string origin;  // "1f1b": the rules, or the search, that it came out of
  int64_t makespan_ns = 0;
  LowerBound bound;
  std::vector<int64_t> peak_bytes;  // of each stage
  double bubble = 0;
};

// `name` is one of schedule_names(), or "auto": the best that a search finds, which is never slower than any named one
// that fits the problem. Throws InvalidArgument for a problem that is not valid, an unknown name, and for a named
// schedule that does not fit the problem or its memory limits.
FoundSchedule find_schedule(const PipelineProblem& problem, std::string_view name = "auto",
                            const FindOptions& options = {});

}  // namespace tessera::pipeline
