// Budgets: what a step may cost by its plan, in a file under version control, so that a change of the network or of the
// planner that makes it dearer is noticed before anything runs.
//
//   {
//     "format": "tessera budget", "version": 1,
//     "model": "gpt2_small", "num_ranks": 8, "profile": "example",
//     "budget": {
//       "step_seconds": {"most": 0.0123, "tolerance": 0.05},
//       "received_bytes": {"most": 123456, "tolerance": 0.05},
//       "peak_bytes": {"most": 123456, "tolerance": 0.05}
//     }
//   }
//
// With --simulate also simulated_step_seconds and simulated_peak_bytes.
#pragma once

#include <string>

#include "tessera/tools/plan/plan_step.h"

namespace tessera::tools {

// A budget that this plan just meets, with a tolerance for each figure.
std::string budget_json(const PlannedStep& planned, const std::string& model);

struct BudgetCheck {
  std::string text;  // a line for each figure of the budget
  bool is_met = false;
};
// Whether no figure is above `most` by more than its tolerance, a share of it. Throws InvalidArgument naming `file` for
// one that is no budget, that is of another model, number of ranks or profile, or has simulated figures where nothing
// is simulated.
BudgetCheck check_budget(const PlannedStep& planned, const std::string& model, const std::string& text,
                         const std::string& file);

}  // namespace tessera::tools
