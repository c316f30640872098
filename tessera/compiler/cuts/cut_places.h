// Where a network can be cut into stages: between cells, and what lies between two such places costs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/cuts/choose_cuts.h"
#include "tessera/compiler/stages/staged_plan.h"

namespace tessera::compiler {

struct CutPlaces {
  CutProblem problem;
  std::vector<std::vector<std::string>> cells;  // by piece: those that lie in it, the innermost ones
  bool cuts_cells = false;                      // whether some cells have operators on both sides of a place

  int num_with_parameters() const;  // pieces
};

// The places of a step that is planned as one stage, for `num_chunks` chunks. A place is where no cell has operators
// on both sides; where these are too few, it is where one cell ends and another one begins, and cells around both are
// cut. What the network itself computes goes with the cell that follows. `link`: between stages.
CutPlaces find_cut_places(const StagedPlan& plan, int num_chunks, const MachineProfile& profile, const Link& link);

// The slowest link of a message from one stage to another: from rank i of the one to rank i of the other where they
// have equally many, else from any rank to any.
const Link& link_between(const MachineProfile& profile, const mesh::StageRanks& ranks, int from, int to);
// The slowest between neighbours.
const Link& slowest_link(const MachineProfile& profile, const mesh::StageRanks& ranks);

// What nn::Cell::set_stage is told.
struct CellStage {
  int stage = 0;
  int segment = 0;
  bool operator==(const CellStage&) const = default;
};
using CellStages = std::map<std::string, CellStage>;
// On which stage each cell is, where the chunks of the cuts are on these. Cells that are cut have none: what they
// compute joins what reads it.
CellStages cell_stages(const CutPlaces& places, const StageCuts& cuts, const std::vector<CellStage>& chunks);
// Gives each node the stage and segment of its cell, and none where that has none; whatever it had before.
void set_stages(ir::Graph& graph, const CellStages& cells);

}  // namespace tessera::compiler
