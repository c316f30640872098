// `tessera graph`: a network at any stage of its compilation, as text or for Graphviz.
#pragma once

#include <string>

#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

struct GraphOptions {
  StepOptions step;
  std::string stage = "logical";  // forward, backward, logical, plan, local or schedule
  std::string format = "text";    // or dot
  int rank = 0;
};
// Throws UsageError for a rank that is not there, and what step_graph throws.
std::string graph_text(const GraphOptions& options);

}  // namespace tessera::tools
