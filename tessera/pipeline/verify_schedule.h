// Checks a schedule against its problem from the definitions alone; it shares nothing with what makes schedules.
#pragma once

#include <string>
#include <vector>

#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::pipeline {

// All faults, each a line that begins with the phase, transfer or stage that it is about; empty for a sound schedule.
//  - each phase is there once, on its chunk's stage, for as long as the problem says; an update is a stage's last phase
//  - a stage computes one phase at a time, a lane carries one message at a time
//  - a phase starts when what it needs has ended there, or has arrived from the other stage
//  - a border has no more messages between their start and the end of the phase that reads them than it has slots
//  - no stage holds more than its memory limit
// The problem must be valid.
std::vector<std::string> verify(const PipelineProblem& problem, const PipelineSchedule& schedule);

}  // namespace tessera::pipeline
