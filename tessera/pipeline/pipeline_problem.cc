#include "tessera/pipeline/pipeline_problem.h"

#include <algorithm>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::pipeline {
namespace {

// Sums of a step stay below this, so that twice the sum of any two can be formed.
constexpr int64_t kLargestSum = int64_t{1} << 60;

// Phases are numbered by int, and each needs some tens of bytes.
constexpr int64_t kMostPhases = 1 << 26;

// Adds up, and refuses what does not fit.
class Sum {
 public:
  explicit Sum(std::string_view what) : what_(what) {}

  void add(int64_t value, int64_t times) {
    if (value > (kLargestSum - sum_) / std::max<int64_t>(times, 1)) {
      throw InvalidArgument(
          "pipeline: the {} of a step must add up to at most 2^60, {} times {} does not; use a larger unit", what_,
          times, value);
    }
    sum_ += value * times;
  }

 private:
  std::string_view what_;
  int64_t sum_ = 0;
};

void require_not_negative(int64_t value, std::string_view owner, int number, std::string_view what) {
  if (value < 0) throw InvalidArgument("pipeline {} {}: {} must be at least 0, found {}", owner, number, what, value);
}

void check_placement(const PipelineProblem& problem) {
  if (problem.stages.empty()) throw InvalidArgument("pipeline: needs at least one stage, has none");
  if (problem.chunks.empty()) throw InvalidArgument("pipeline: needs at least one chunk, has none");
  std::vector<bool> has_chunk(problem.stages.size(), false);
  for (int c = 0; c < problem.num_chunks(); ++c) {
    const int stage = problem.chunks[static_cast<size_t>(c)].stage;
    if (stage < 0 || stage >= problem.num_stages()) {
      throw InvalidArgument("pipeline chunk {}: must be on one of the stages 0..{}, is on {}", c,
                            problem.num_stages() - 1, stage);
    }
    has_chunk[static_cast<size_t>(stage)] = true;
  }
  for (int s = 0; s < problem.num_stages(); ++s) {
    if (!has_chunk[static_cast<size_t>(s)]) {
      throw InvalidArgument("pipeline stage {}: must have a chunk, has none; give it one or use {} stages", s,
                            problem.num_stages() - 1);
    }
  }
  if (problem.borders.size() + 1 != problem.chunks.size()) {
    throw InvalidArgument("pipeline: {} chunks have {} borders between them, {} are given", problem.chunks.size(),
                          problem.chunks.size() - 1, problem.borders.size());
  }
  if (problem.micro_batches < 1) {
    throw InvalidArgument("pipeline: needs at least one micro-batch, has {}", problem.micro_batches);
  }
  if (3 * static_cast<int64_t>(problem.num_chunks()) * problem.micro_batches > kMostPhases) {
    throw InvalidArgument(
        "pipeline: {} chunks and {} micro-batches have more than {} phases; cut one of them less finely",
        problem.num_chunks(), problem.micro_batches, kMostPhases);
  }
  if (problem.slots < 1) throw InvalidArgument("pipeline: a border needs at least one slot, has {}", problem.slots);
}

void check_numbers(const PipelineProblem& problem) {
  Sum times("times");
  Sum bytes("bytes");
  for (int s = 0; s < problem.num_stages(); ++s) {
    const auto& stage = problem.stages[static_cast<size_t>(s)];
    require_not_negative(stage.update_ns, "stage", s, "the time of the update");
    require_not_negative(stage.memory_limit_bytes, "stage", s, "the memory limit");
    times.add(stage.update_ns, 1);
  }
  for (int c = 0; c < problem.num_chunks(); ++c) {
    const auto& chunk = problem.chunks[static_cast<size_t>(c)];
    require_not_negative(chunk.forward_ns, "chunk", c, "the time of forward");
    require_not_negative(chunk.backward_ns, "chunk", c, "the time of backward");
    require_not_negative(chunk.weight_gradient_ns, "chunk", c, "the time of the weight gradient");
    require_not_negative(chunk.activation_bytes, "chunk", c, "what it keeps");
    require_not_negative(chunk.weight_gradient_bytes, "chunk", c, "what its weight gradient needs");
    if (chunk.weight_gradient_bytes > chunk.activation_bytes) {
      throw InvalidArgument(
          "pipeline chunk {}: what its weight gradient needs is part of what it keeps, found {} of {} bytes", c,
          chunk.weight_gradient_bytes, chunk.activation_bytes);
    }
    for (const auto time : {chunk.forward_ns, chunk.backward_ns, chunk.weight_gradient_ns}) {
      times.add(time, problem.micro_batches);
    }
    bytes.add(chunk.activation_bytes, problem.micro_batches);
  }
  for (int b = 0; b + 1 < problem.num_chunks(); ++b) {
    const auto& border = problem.borders[static_cast<size_t>(b)];
    for (const auto& transfer : {border.forward, border.backward}) {
      require_not_negative(transfer.latency_ns, "border", b, "a latency");
      require_not_negative(transfer.duration_ns, "border", b, "a duration");
      times.add(transfer.latency_ns, problem.micro_batches);
      times.add(transfer.duration_ns, problem.micro_batches);
    }
    for (const auto slot : {border.forward_slot_bytes, border.backward_slot_bytes}) {
      require_not_negative(slot, "border", b, "a slot");
      bytes.add(slot, problem.slots);
    }
  }
}

// A micro-batch holds what all chunks of the stage keep when it turns back at the end of the network; and where that
// fits, one micro-batch after the other can be computed.
void check_memory(const PipelineProblem& problem) {
  for (int s = 0; s < problem.num_stages(); ++s) {
    const int64_t slots = problem.slot_bytes(s);
    int64_t kept = 0;
    for (const auto& chunk : problem.chunks) kept += chunk.stage == s ? chunk.activation_bytes : 0;
    const int64_t limit = problem.stages[static_cast<size_t>(s)].memory_limit_bytes;
    if (slots + kept > limit) {
      throw InvalidArgument(
          "pipeline stage {}: no micro-batch fits into its limit of {} bytes ({}): its chunks keep {} bytes of each, "
          "its "
          "receive slots take {}; raise the limit to {} bytes, make micro-batches smaller or recompute activations",
          s, limit, format_bytes(limit), kept, slots, slots + kept);
    }
  }
}

std::vector<int> stages_of_visits(int chunks, const std::vector<int>& visits) {
  const int count = static_cast<int>(visits.size());
  if (count == 0 || chunks < count) {
    throw InvalidArgument(
        "pipeline: {} visits to stages need as many chunks, there are {}; cut the network finer or use "
        "fewer stages",
        count, chunks);
  }
  std::vector<int> stages;
  for (int64_t c = 0; c < chunks; ++c) stages.push_back(visits[static_cast<size_t>(c * count / chunks)]);
  return stages;
}

}  // namespace

bool PipelineProblem::crosses(int border) const {
  const auto b = static_cast<size_t>(border);
  return chunks[b].stage != chunks[b + 1].stage;
}

int64_t PipelineProblem::backward_phase_ns(int chunk) const {
  const auto& c = chunks[static_cast<size_t>(chunk)];
  return split_backward ? c.backward_ns : c.backward_ns + c.weight_gradient_ns;
}

int64_t PipelineProblem::kept_after_backward(int chunk) const {
  return split_backward ? chunks[static_cast<size_t>(chunk)].weight_gradient_bytes : 0;
}

int64_t PipelineProblem::slot_bytes(int stage) const {
  int64_t bytes = 0;
  for (int b = 0; b + 1 < num_chunks(); ++b) {
    if (!crosses(b)) continue;
    const auto i = static_cast<size_t>(b);
    if (chunks[i + 1].stage == stage) bytes += slots * borders[i].forward_slot_bytes;
    if (chunks[i].stage == stage) bytes += slots * borders[i].backward_slot_bytes;
  }
  return bytes;
}

void validate(const PipelineProblem& problem) {
  check_placement(problem);
  check_numbers(problem);
  check_memory(problem);
}

std::vector<StageVisit> stage_visits(const PipelineProblem& problem) {
  std::vector<StageVisit> visits;
  for (int c = 0; c < problem.num_chunks(); ++c) {
    const int stage = problem.chunks[static_cast<size_t>(c)].stage;
    if (visits.empty() || visits.back().stage != stage) visits.push_back({stage, c, c});
    visits.back().end = c + 1;
  }
  return visits;
}

std::vector<int> in_turn(int chunks, int stages, int rounds) {
  std::vector<int> visits;
  for (int round = 0; round < rounds; ++round) {
    for (int s = 0; s < stages; ++s) visits.push_back(s);
  }
  return stages_of_visits(chunks, visits);
}

std::vector<int> there_and_back(int chunks, int stages) {
  std::vector<int> visits;
  for (int s = 0; s < stages; ++s) visits.push_back(s);
  for (int s = stages - 1; s >= 0; --s) visits.push_back(s);
  return stages_of_visits(chunks, visits);
}

}  // namespace tessera::pipeline
