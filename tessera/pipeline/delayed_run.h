// Carries out a schedule's order in other times than were predicted: for tests.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::pipeline {

// The time of a phase or of a message (what it was predicted to take is known to the caller).
using DelayedTime = std::function<int64_t(const Phase&, bool is_message)>;

// When the step ends; -1 where it never does, because phases wait for each other for ever. Each stage takes its phases
// in the order of the schedule; a phase waits for what it needs; a message starts when its sender has ended, a slot of
// its border is free, and those that the receiver reads before it on that border have started.
int64_t run_delayed(const PipelineProblem& problem, const PipelineSchedule& schedule, int slots,
                    const DelayedTime& time);

}  // namespace tessera::pipeline
