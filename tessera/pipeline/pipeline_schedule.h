// A PipelineSchedule says which phase of a pipelined step runs when on which stage, and when each message is sent. It
// is data: the order within a stage is what is carried out, the times are predictions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/pipeline/pipeline_problem.h"

namespace tessera::pipeline {

// kBackward is the whole backward where it is not split, else the gradient of the chunk's input.
enum class PhaseKind { kForward, kBackward, kWeightGradient, kUpdate };
// "forward", "backward", "weight_gradient", "update".
std::string to_string(PhaseKind kind);

// An update belongs to a stage: its chunk and micro-batch are -1.
struct Phase {
  PhaseKind kind = PhaseKind::kForward;
  int chunk = -1;
  int micro_batch = -1;
  bool operator==(const Phase&) const = default;
};

struct TimedPhase {
  Phase phase;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool operator==(const TimedPhase&) const = default;
};

// What `sender`, a forward or a backward phase, sends over its border.
struct TimedTransfer {
  Phase sender;
  int64_t start_ns = 0;
  int64_t arrival_ns = 0;
  bool operator==(const TimedTransfer&) const = default;
};

struct PipelineSchedule {
  std::vector<std::vector<TimedPhase>> stages;  // of each stage, in order
  std::vector<TimedTransfer> transfers;         // by start, then sender: kind, chunk, micro-batch

  int64_t makespan_ns() const;
  bool operator==(const PipelineSchedule&) const = default;
};

// How long the phase takes: of a chunk, or the update of `stage`.
int64_t phase_ns(const PipelineProblem& problem, const Phase& phase, int stage);

// The most memory that each stage holds at any time, slots included. It follows from the order of the stage's phases
// alone: all that takes or frees memory there is one of them. So delays never break a limit.
std::vector<int64_t> peak_bytes(const PipelineProblem& problem, const PipelineSchedule& schedule);

// The time in which the stages do nothing: 1 - work / (stages * makespan); 0 where nothing takes time.
double bubble(const PipelineSchedule& schedule);

// The time in which a stage does nothing between its first phase and its last.
int64_t idle_within_span_ns(const PipelineSchedule& schedule, int stage);

}  // namespace tessera::pipeline
