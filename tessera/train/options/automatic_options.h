// How automatic parallelism looks for a plan.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/compiler/choose_plan.h"

namespace tessera::train {

struct AutomaticPlanOptions {
  // What is put in order by a simulation, and stands against data parallel by a percent, need not be proven further.
  compiler::SearchOptions search = {.rounds = 16, .gap = 5e-3};
  // Absent: measure_briefly() (modes/measured_profile.h).
  std::optional<compiler::MachineProfile> profile = std::nullopt;
  // A planner of one's own, in place of the search: from the step as it is planned to the choices for it.
  std::function<compiler::PlanRecord(const ir::Graph&)> planner = {};
  // A plan that `tessera plan --out` or an earlier run wrote, in place of a search; "": none.
  std::string load_file = {};
  std::string save_file = {};  // where rank 0 writes the plan; "": nowhere
};

}  // namespace tessera::train
