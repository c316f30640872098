// `tessera plan --html`: a planned step as one page that works from disk and asks for nothing.
#pragma once

#include <string>

#include "tessera/tools/plan/plan_step.h"

namespace tessera::tools {

// What was taken, over what and why, and its numbers; the plans that were compared; the graph, coloured by how
// operators are split, cells folded; memory over the step; the lanes of the simulation, if there is one; a table of all
// operators.
std::string plan_page(const PlannedStep& planned, const std::string& model);

}  // namespace tessera::tools
