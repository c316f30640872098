// From a schedule of phases to the programs of the stages: which slot a micro-batch has, and when messages are received
// and sent.
#pragma once

#include <map>
#include <vector>

#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/ir/program.h"
#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::compiler {

// Says how many micro-batches each chunk of a stage has begun and not ended at once, at the most, in that order.
std::map<int, int> most_in_flight(const std::vector<pipeline::TimedPhase>& order);

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
