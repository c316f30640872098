// `tessera plan --stages --html`: a planned pipeline as one page that works from disk and asks for nothing.
#pragma once

#include <string>

#include "tessera/tools/plan/stages_step.h"

namespace tessera::tools {

// The text of stages_text(); stage by time, with phases coloured and named where the pointer is; below each stage the
// memory of one of its ranks over the step. A pipeline must have been taken.
std::string stages_page(const StagesStep& step, const std::string& model);

}  // namespace tessera::tools
