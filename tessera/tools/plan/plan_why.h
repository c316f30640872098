// `tessera plan --why`: what an operator could have been instead, and what each of that would cost. `--diff`: what two
// plans do differently.
#pragma once

#include <string>

#include "tessera/tools/plan/plan_step.h"

namespace tessera::tools {

// The `num_choices` next best choices of one operator, "CELL:OPERATOR" or "gradient CELL:OPERATOR", of the first with
// that name: everything else is searched again beside each, on the plan's grid. Says how many seconds more the step
// would take, and at which operators. Throws InvalidArgument for an operator that is not there, naming the closest.
std::string why_text(const PlannedStep& planned, const PlanCommand& command, const std::string& op, int num_choices);

// The operators that two plan files for this step split differently, and the costs of both. The command's options say
// which step and which machines. Throws as plan_step does.
std::string diff_text(const PlanCommand& command, const std::string& first, const std::string& second);

// "+1.2 ms", "-3 us", "0".
std::string signed_seconds(double seconds);

}  // namespace tessera::tools
