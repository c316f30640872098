// Where automatic parallelism cuts a network into the stages of a pipeline, and which ranks each stage has.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tessera/cluster/ranks/context.h"
#include "tessera/compiler/pipelines/choose_stages.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

struct FoundCuts {
  compiler::CellStages cells;
  mesh::StageRanks ranks;
  int micro_batches = 1;
};

// The stage of each cell, for a training step of batches of so many rows; `graphs_of` as StagePlanner asks for it.
// Where the number of stages is to be found, too, it is the one that simulates fastest, one stage included, and so are
// the ranks of each stage, and the number of micro-batches where the options give none. All ranks find the same, from
// the same options and profile. Rank 0 says in the log what was found. Throws as StagePlanner::plan does.
FoundCuts find_cuts(cluster::Context& context, int64_t rows,
                    const std::function<compiler::StepGraphs(int micro_batches)>& graphs_of,
                    const ModelOptions& options, const compiler::MachineProfile& profile);

// What is kept of it as text, and read again.
std::string print_cuts(const FoundCuts& found);
FoundCuts parse_cuts(const std::string& text);

}  // namespace tessera::train
