// A time in which no schedule of a problem can be done, whatever its order: proven, not estimated.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/pipeline/pipeline_problem.h"

namespace tessera::pipeline {

struct LowerBound {
  int64_t ns = 0;
  // What it comes from, for people: "stage 2: what comes first, its own work and what comes last".
  std::string reason;
};

// No sound schedule of the problem has a makespan below it: for its placement, chunks, split, memory limits and slots,
// with updates after all micro-batches. The greatest of
//
//  - for each stage and lane, over all times h and q: h + q + the time of its phases (messages) that cannot start
//  before h and
//    have at least q after their end. These take place one at a time, after h and before the last q. With h and q
//    from longest paths (precedence.h) this holds the critical path of a micro-batch, and head + work + tail of a
//    stage.
//  - for each stage with a memory limit: a micro-batch occupies what a chunk keeps from forward through all later
//  chunks to
//    backward, and for as long as the weight gradient takes the rest. Bytes times time of all micro-batches pass
//    through a window of `limit` bytes between the stage's first forward and the time when it has given back the last.
//
// The problem must be valid. Takes a time of about micro-batches x (series)^2 / stages.
LowerBound lower_bound(const PipelineProblem& problem);

}  // namespace tessera::pipeline
