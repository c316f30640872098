// `tessera plan --memory`: what the memory of a train step is used for.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

struct PlanMemoryOptions {
  StepOptions step;
  int rank = 0;
  bool json = false;
  int num_values = 24;  // how many of the values alive at the peak the table lists
};
// A table, or one JSON object with all that lives at the peak and what is alive at each step. Throws UsageError for a
// rank that is not there, and what step_graph throws.
std::string plan_memory_text(const PlanMemoryOptions& options);

}  // namespace tessera::tools
