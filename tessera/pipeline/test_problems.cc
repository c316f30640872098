#include "tessera/pipeline/test_problems.h"
#include "tessera/base/integers.h"

#include <algorithm>

namespace tessera::pipeline {
namespace {

std::vector<int> random_placement(ProblemDraws& draws, int stages) {
  const auto chunks = static_cast<int>(stages * draws.between(1, 3) + draws.below(3));
  switch (draws.below(4)) {
    case 0: return in_turn(chunks, stages);
    case 1: return in_turn(chunks, stages, std::max(chunks / stages, 1));
    case 2: return chunks >= 2 * stages ? there_and_back(chunks, stages) : in_turn(chunks, stages);
    default: break;
  }
  std::vector<int> placement;
  for (int c = 0; c < chunks; ++c) placement.push_back(c < stages ? c : static_cast<int>(draws.below(stages)));
  for (int c = chunks - 1; c > 0; --c)
    std::swap(placement[as_index(c)], placement[as_index(static_cast<int>(draws.below(c + 1)))]);
  return placement;
}

}  // namespace

PipelineProblem equal_problem(const Equal& equal) {
  PipelineProblem problem{.stages = std::vector<PipelineStage>(as_index(equal.stages)),
                          .micro_batches = equal.micro_batches,
                          .split_backward = equal.split};
  const int visits = equal.stages * (equal.back ? 2 : equal.rounds);
  const int chunks = equal.chunks > 0 ? equal.chunks : visits;
  const auto placement =
      equal.back ? there_and_back(chunks, equal.stages) : in_turn(chunks, equal.stages, equal.rounds);
  for (const int stage : placement) {
    problem.chunks.push_back({.stage = stage,
                              .forward_ns = equal.forward,
                              .backward_ns = equal.backward,
                              .weight_gradient_ns = equal.weight_gradient,
                              .activation_bytes = 2,
                              .weight_gradient_bytes = 1});
  }
  problem.borders.resize(problem.chunks.size() - 1);
  return problem;
}

void limit_memory(PipelineProblem& problem, int64_t micro_batches_in_flight) {
  for (int s = 0; s < problem.num_stages(); ++s) {
    int64_t kept = 0;
    for (const auto& chunk : problem.chunks) kept += chunk.stage == s ? chunk.activation_bytes : 0;
    problem.stages[as_index(s)].memory_limit_bytes = problem.slot_bytes(s) + kept * micro_batches_in_flight;
  }
}

PipelineProblem random_problem(uint64_t seed, int most_stages, int most_micro_batches) {
  ProblemDraws draws(seed);
  const auto stages = static_cast<int>(draws.between(1, most_stages));
  PipelineProblem problem{.stages = std::vector<PipelineStage>(as_index(stages)),
                          .micro_batches = static_cast<int>(draws.between(1, most_micro_batches)),
                          .split_backward = draws.below(2) == 0,
                          .slots = static_cast<int>(draws.between(1, 3))};
  // Multiples of the stages are what interleaved schedules want.
  if (draws.below(2) == 0) problem.micro_batches = std::max(problem.micro_batches / stages, 1) * stages;
  problem.micro_batches = std::min(problem.micro_batches, std::max(most_micro_batches, 1));
  const int64_t longest = draws.below(3) == 0 ? 2 : (draws.below(2) == 0 ? 10 : 1000);
  for (const int stage : random_placement(draws, stages)) {
    const int64_t bytes = draws.below(20);
    problem.chunks.push_back({.stage = stage,
                              .forward_ns = draws.below(longest + 1),
                              .backward_ns = draws.below(longest + 1),
                              .weight_gradient_ns = draws.below(longest + 1),
                              .activation_bytes = bytes,
                              .weight_gradient_bytes = draws.below(bytes + 1)});
  }
  const bool free = draws.below(3) == 0;
  for (size_t b = 0; b + 1 < problem.chunks.size(); ++b) {
    const auto time = [&] { return free ? 0 : draws.below(longest / 2 + 1); };
    problem.borders.push_back({.forward = {time(), time()},
                               .backward = {time(), time()},
                               .forward_slot_bytes = draws.below(5),
                               .backward_slot_bytes = draws.below(5)});
  }
  for (auto& stage : problem.stages) stage.update_ns = draws.below(2) == 0 ? 0 : draws.below(longest + 1);
  limit_memory(problem, draws.between(1, 2 * stages));
  for (auto& stage : problem.stages) {
    if (draws.below(4) == 0) stage.memory_limit_bytes = kNoMemoryLimit;
    if (draws.below(4) == 0 && stage.memory_limit_bytes < kNoMemoryLimit) stage.memory_limit_bytes += draws.below(20);
  }
  return problem;
}

PipelineProblem unequal_problem(const Equal& equal, uint64_t seed) {
  ProblemDraws draws(seed);
  auto problem = equal_problem(equal);
  for (auto& chunk : problem.chunks) {
    const int64_t size = draws.between(50, 150);
    chunk.forward_ns = size * draws.between(90, 110) / 100;
    chunk.backward_ns = size * draws.between(90, 130) / 100;
    chunk.weight_gradient_ns = size * draws.between(60, 110) / 100;
  }
  return problem;
}

}  // namespace tessera::pipeline
