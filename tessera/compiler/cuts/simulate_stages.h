// What a step of a pipeline takes, without running it: each phase of each stage is compiled and simulated as any graph
// is, what a stage keeps is counted as its ranks lay it out, and a schedule is found for that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/cuts/choose_cuts.h"
#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/pipeline/search/find_schedule.h"

namespace tessera::compiler {

struct StageSimulationOptions {
  int micro_batches = 1;
  // "auto": the best that a search finds, with a whole or with a split backward; or a schedule's name.
  std::string schedule = "auto";
  int64_t memory_limit_bytes = 0;  // of a rank; 0: none
  int receive_ahead = 1;           // as in ProgramOptions
  int64_t effort = 200'000;        // FindOptions::effort
  Deadline deadline = {};
  // Kernels and options that phases are compiled with. Without kernels they are those of no machine in particular,
  // which take no scratch memory. What `compile` says of verification and deadlines is not looked at.
  const ops::KernelCatalogue* kernels = nullptr;
  CompileOptions compile = {};
};

// What a SimulatedChunk and a SimulatedStage say is of one of the stage's ranks.
struct SimulatedChunk {
  int stage = 0;
  int segment = 0;
  double forward_seconds = 0;
  double backward_seconds = 0;  // with the weight gradients where these are not split off
  double weight_gradient_seconds = 0;
  int64_t slot_bytes = 0;  // of one micro-batch: what is received, read of the batch, and kept between phases
  int slots = 0;           // micro-batches that there is room for
};
// StageMemory says what a step takes of the arena of one of the stage's ranks, in bytes: as it is simulated, and as it
// is (session/pipelined_step.h).
struct StageMemory {
  int64_t persistent_bytes = 0;  // parameters, states and accumulators
  int64_t arena_bytes = 0;       // the most that a phase takes beside these and the slots
  int64_t slots_bytes = 0;       // the slots of all chunks
  int64_t memory_bytes() const { return persistent_bytes + arena_bytes + slots_bytes; }
};
struct SimulatedStage : StageMemory {
  double update_seconds = 0;
};

// What goes from chunk to chunk for one micro-batch: the bytes of the rank that sends or receives most of each message.
struct ChunkTraffic {
  int from = 0;
  int to = 0;
  int messages = 0;
  int64_t bytes = 0;
};

struct SimulatedStages {
  std::vector<SimulatedStage> stages;
  std::vector<SimulatedChunk> chunks;
  std::vector<ChunkTraffic> traffic;  // between chunks of different stages, by sender and receiver
  pipeline::PipelineProblem problem;
  pipeline::FoundSchedule found;

  bool split_backward() const { return problem.split_backward; }
  double step_seconds() const { return static_cast<double>(found.makespan_ns) * 1e-9; }
  double bound_seconds() const { return static_cast<double>(found.bound.ns) * 1e-9; }
  int64_t memory_bytes() const;  // of the stage that takes most
};

// Leaves the plan with the placement that the schedule needs. Throws
// DoesNotFit where a stage does not fit into the memory limit, with as many micro-batches as the schedule holds that
// has a name, or with one where it is searched for; InvalidArgument for fewer micro-batches than stages, and as
// find_schedule() does; DeadlineOver where there is no time.
SimulatedStages simulate_stages(StagedPlan& plan, const MachineProfile& profile, const StageSimulationOptions& options);

}  // namespace tessera::compiler
