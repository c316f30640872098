// What a stage does, cut out of the plan of all stages: its phases, its rounds of the update, and what it does once a
// step.
#pragma once

#include <vector>

#include "tessera/compiler/stages/cut_chunk.h"
#include "tessera/compiler/stages/planned_part.h"
#include "tessera/compiler/stages/staged_plan.h"

namespace tessera::compiler {

// The phases of a chunk, on the ranks of its stage.
ChunkParts cut_chunk(const StagedPlan& plan, int chunk);
// What a stage does in each round of the update.
std::vector<PlannedPart> cut_update(const StagedPlan& plan, int stage);
// The parameters of this stage that lie in shards, made whole.
PlannedPart cut_gather(const StagedPlan& plan, int stage);
// What this stage has added up for stages of other kinds, completed; summed_name() says under which states.
PlannedPart cut_sums(const StagedPlan& plan, int stage);

}  // namespace tessera::compiler
