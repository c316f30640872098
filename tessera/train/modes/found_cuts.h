// Where automatic parallelism cuts a network into the stages of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tessera/cluster/ranks/context.h"
#include "tessera/compiler/stages/choose_stages.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

// The stage of each cell, for a training step of batches of so many rows; `graphs_of` as StagePlanner asks for it. All
// ranks find the same, from the same options and profile. Rank 0 says in the log what was found. Throws as
// StagePlanner::plan does.
compiler::CellStages find_cuts(cluster::Context& context, int64_t rows,
                               const std::function<compiler::StepGraphs(int micro_batches)>& graphs_of,
                               const ModelOptions& options, int micro_batches, const compiler::MachineProfile& profile);

}  // namespace tessera::train
