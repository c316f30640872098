// A planned step is written as a table for people, or as JSON.
#pragma once

#include <string>

#include "tessera/tools/plan/plan_step.h"

namespace tessera::tools {

// What the step costs, beside data parallel and on other grids, then the operators, of which the `num_rows` that take
// longest are listed.
std::string plan_text(const PlannedStep& planned, const std::string& model, int num_rows);
// The first lines of it: what the step costs, beside data parallel.
std::string plan_summary(const PlannedStep& planned, const std::string& model);
// Returns everything, operator by operator.
std::string plan_json(const PlannedStep& planned, const std::string& model);

}  // namespace tessera::tools
