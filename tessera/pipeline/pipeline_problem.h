// What a pipelined training step consists of: chunks of a network, in order, on stages; micro-batches that pass through
// all chunks forward and then backward; how long everything takes, and what memory it needs.
//
// Times are whole nanoseconds (or any other whole unit): sums are exact, so equal problems have equal schedules on
// every machine, and a lower bound can be met to the last digit. Micro-batches are equal to each other.
//
// It knows nothing of networks and ranks: a stage is a number, whoever asks says which ranks it stands for.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tessera::pipeline {

inline constexpr int64_t kNoMemoryLimit = std::numeric_limits<int64_t>::max();

// A part of the network that runs as one on one stage. Chunk 0 has the network's input, the last one its loss.
struct PipelineChunk {
  int stage = 0;
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;         // the gradient of its input
  int64_t weight_gradient_ns = 0;  // the gradients of its parameters
  // Kept of each micro-batch from the start of its forward until its backward ends; of these, what its weight gradient
  // still needs is kept until that ends.
  int64_t activation_bytes = 0;
  int64_t weight_gradient_bytes = 0;
  bool operator==(const PipelineChunk&) const = default;
};

// A message from stage to stage: it occupies the lane from one to the other for `duration_ns`, and has arrived
// `latency_ns` after that.
struct TransferTime {
  int64_t latency_ns = 0;
  int64_t duration_ns = 0;
  bool operator==(const TransferTime&) const = default;
};

// A border lies between a chunk and the next one. Where both are on one stage nothing is sent, and it says nothing.
struct PipelineBorder {
  TransferTime forward;   // activations
  TransferTime backward;  // their gradients
  // The receive slots of the two directions, which the receiving stage holds during the whole step.
  int64_t forward_slot_bytes = 0;
  int64_t backward_slot_bytes = 0;
  bool operator==(const PipelineBorder&) const = default;
};

struct PipelineStage {
  int64_t update_ns = 0;                        // of the parameters of all its chunks, after all of its other phases
  int64_t memory_limit_bytes = kNoMemoryLimit;  // for slots and what chunks keep
  bool operator==(const PipelineStage&) const = default;
};

struct PipelineProblem {
  std::vector<PipelineStage> stages;
  std::vector<PipelineChunk> chunks;
  std::vector<PipelineBorder> borders;  // border c is between chunks c and c + 1
  int micro_batches = 1;
  // Whether gradients of inputs and of parameters are phases of their own; else backward is both, one after the other.
  bool split_backward = false;
  // How many messages each border has room for, in each direction. A slot is taken when its message starts, which waits
  // for it, and is free again when the phase that reads the message has ended. A message that waits stays with its
  // sender, where it counts as part of what that chunk keeps.
  int slots = 2;

  int num_stages() const { return static_cast<int>(stages.size()); }
  int num_chunks() const { return static_cast<int>(chunks.size()); }
  // Whether what passes between chunks c and c + 1 goes from stage to stage.
  bool crosses(int border) const;
  // Time of a chunk's backward phase, and what it keeps after that.
  int64_t backward_phase_ns(int chunk) const;
  int64_t kept_after_backward(int chunk) const;
  // The receive slots of a stage.
  int64_t slot_bytes(int stage) const;

  bool operator==(const PipelineProblem&) const = default;
};

// Throws InvalidArgument: a stage without chunks or a chunk without stage, numbers that do not match, negative times or
// bytes, more phases, time or bytes in a step than can be counted, a memory limit in which no micro-batch fits.
void validate(const PipelineProblem& problem);

// Runs of consecutive chunks on one stage: a micro-batch enters a stage once for each.
struct StageVisit {
  int stage = 0;
  int begin = 0;  // chunks begin..end-1
  int end = 0;
};
std::vector<StageVisit> stage_visits(const PipelineProblem& problem);

// The stage of each of `chunks` chunks: visits of equal length, as near as possible, that go
//   in_turn(8, 4, 1)   0 0 1 1 2 2 3 3    once over all stages
//   in_turn(8, 4, 2)   0 1 2 3 0 1 2 3    and again, `rounds` times: interleaved
//   there_and_back(8, 4)   0 1 2 3 3 2 1 0    V-shaped; the two in the middle are one visit
// Throws InvalidArgument when there are fewer chunks than visits.
std::vector<int> in_turn(int chunks, int stages, int rounds = 1);
std::vector<int> there_and_back(int chunks, int stages);

}  // namespace tessera::pipeline
