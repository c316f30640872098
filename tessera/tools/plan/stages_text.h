// A pipeline that was planned, as a table and a picture for people, or as JSON.
#pragma once

#include <string>

#include "tessera/tools/plan/stages_step.h"

namespace tessera::tools {

// The stages with their cells, times and memory; what crosses the cuts; the step's time beside its proven bound and
// beside data parallel; the picture, stage by time. With "auto" what was compared before that, and where one stage is
// taken that alone.
std::string stages_text(const StagesStep& step, const std::string& model);
// Returns the same as one JSON object.
std::string stages_json(const StagesStep& step, const std::string& model);

}  // namespace tessera::tools
