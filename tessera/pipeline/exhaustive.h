// The least makespan of a small problem, by looking at every order: what bounds and searches are compared with. Shares
// nothing with them.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/pipeline/pipeline_problem.h"

namespace tessera::pipeline {

// Micro-batches go in order (series.h), and each message starts as soon as it can; so the orders of the stages' phases
// are all there is to choose. That is so where no two borders share a lane, or messages occupy none: on any other
// problem this is a bug of the caller. `known_ns`: the makespan of some schedule. nullopt where more than `most_states`
// would have to be looked at.
std::optional<int64_t> least_makespan(const PipelineProblem& problem, int64_t known_ns, int64_t most_states);

}  // namespace tessera::pipeline
