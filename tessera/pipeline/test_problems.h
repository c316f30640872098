// Problems for the tests of this folder.
#pragma once

#include <cstdint>

#include "tessera/base/random.h"
#include "tessera/pipeline/pipeline_problem.h"

namespace tessera::pipeline {

// Whole numbers drawn from one seed, one after the other, of which problems are made.
class ProblemDraws {
 public:
  explicit ProblemDraws(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return random_below({.seed = seed_}, next_++, n); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

struct Equal {
  int stages = 4;
  int micro_batches = 8;
  int64_t forward = 1;
  int64_t backward = 1;
  int64_t weight_gradient = 1;
  bool split = false;
  int rounds = 1;     // visits to each stage, in turn
  bool back = false;  // there and back instead
  int chunks = 0;     // 0: one for each visit
};
// Equal chunks, each of which keeps two bytes, of which one for its weight gradient; transfers that take no time.
PipelineProblem equal_problem(const Equal& equal);

// Gives each stage the memory that 1f1b needs: what its chunks keep, for as many micro-batches as there are stages.
void limit_memory(PipelineProblem& problem, int64_t micro_batches_in_flight);

// Up to `most_stages` stages and `most_micro_batches` micro-batches; placements in turn, there and back and arbitrary;
// times that are zero, small or very different; memory from just enough to ample; split and not.
PipelineProblem random_problem(uint64_t seed, int most_stages = 8, int most_micro_batches = 16);

// Chunks of unequal times, on the way of `equal`.
PipelineProblem unequal_problem(const Equal& equal, uint64_t seed);

}  // namespace tessera::pipeline
