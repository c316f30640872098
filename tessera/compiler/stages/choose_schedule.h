// In which order the stages of a pipeline run their phases: a step as the problem of tessera/pipeline, and the schedule
// that is found for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/pipeline/search/find_schedule.h"

namespace tessera::compiler {

// As schedules count time: in whole nanoseconds, of which a phase takes at least one.
int64_t nanoseconds(double seconds);

// What a step of `micro_batches` is to the scheduler: times by the profile, bytes as the slots have them. The backward
// phases of a placement that is not split count as the gradient of the input.
pipeline::PipelineProblem pipeline_problem(const StagedPlan& plan, int micro_batches, const MachineProfile& profile);

struct ChosenSchedule {
  pipeline::FoundSchedule found;
  bool split_backward = false;
};
// Of that name, or "auto": what find_schedule() finds with a whole or with a split backward, whichever is faster. Gives
// the plan the placement that the schedule needs. Throws InvalidArgument for an unknown name, and for a schedule that
// does not fit the chunks and micro-batches.
ChosenSchedule choose_schedule(StagedPlan& plan, int micro_batches, const std::string& name,
                               const MachineProfile& profile);

// The border whose messages one from chunk `from` to `to` is counted with: the last one that it passes from stage to
// stage. nullopt where it stays on its stage.
std::optional<int> border_of(const StagePlacement& placement, int from, int to);
// The schedules of that name whose backward is split.
bool splits_backward(const std::string& schedule);

}  // namespace tessera::compiler
