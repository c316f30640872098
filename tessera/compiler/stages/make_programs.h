// From a schedule of phases to the programs of the stages: which slot a micro-batch has, and when messages are received
// and sent.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/ir/program.h"
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

// Says how many micro-batches each chunk of a stage has begun and not ended at once, at the most, in that order.
std::map<int, int> most_in_flight(const std::vector<pipeline::TimedPhase>& order);
// The border whose messages one from chunk `from` to `to` is counted with: the last one that it passes from stage to
// stage. nullopt where it stays on its stage.
std::optional<int> border_of(const StagePlacement& placement, int from, int to);
// The schedules of that name whose backward is split.
bool splits_backward(const std::string& schedule);

struct ProgramOptions {
  int micro_batches = 1;
  // How many more micro-batches than are in flight a chunk has room for: messages arrive while others compute.
  int receive_ahead = 1;
  // What passes once a step: sums of gradients before the update, new values after it.
  std::vector<SharedMessage> sums = {};
  std::vector<SharedMessage> values = {};
};
// One for each stage. They verify.
std::vector<ir::Program> make_programs(const pipeline::PipelineSchedule& schedule, const StagePlacement& placement,
                                       const std::vector<ChunkMessage>& messages, const ProgramOptions& options);
// Forward alone, of one micro-batch: an evaluation, or a prediction.
std::vector<ir::Program> make_forward_programs(const StagePlacement& placement,
                                               const std::vector<ChunkMessage>& messages);

}  // namespace tessera::compiler
