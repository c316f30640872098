// What the parts of a planned pipeline are called, wherever `tessera plan` speaks of them.
#pragma once

#include <string>

#include "tessera/tools/plan/stages_step.h"

namespace tessera::tools {

// "4 stages", or "4 stages of 2 segments".
std::string stages_name(const compiler::PlannedStages& planned);
// "2 ranks", of each stage; "3 + 1 ranks".
std::string ranks_name(const mesh::StageRanks& ranks);
// The name that --schedule takes, and what the search came to where that is "auto".
std::string schedule_name(const compiler::PlannedStages& planned, const StagesStep& step);

const compiler::CutPiece& first_piece(const compiler::PlannedStages& planned, int chunk);
const compiler::CutPiece& last_piece(const compiler::PlannedStages& planned, int chunk);

}  // namespace tessera::tools
