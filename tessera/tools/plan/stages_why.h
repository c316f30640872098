// `tessera plan --stages --why`: why a pipeline is cut where it is, and why its ranks are dealt as they are.
#pragma once

#include <string>

#include "tessera/tools/plan/stages_step.h"

namespace tessera::tools {

// What the step would take otherwise, each way simulated. `what` is a cut: if that between stage `what` and the next
// one lay at one of the `num_choices` places around it. "ranks": how long each stage would take with other numbers of
// ranks, and what a step takes that deals the ranks in one of the `num_choices` next best ways, that of equally many
// among them. Throws UsageError for a cut that is not there.
std::string why_stages_text(StagesStep& step, const std::string& what, int num_choices);

}  // namespace tessera::tools
