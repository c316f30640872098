// `tessera graph`: a network at any stage of its compilation, as text or for Graphviz.
#pragma once

#include <string>

#include "tessera/tools/train_step.h"

namespace tessera::tools {

struct GraphOptions {
  StepOptions step;
  std::string stage = "logical";  // forward, backward, logical, plan, local or schedule
  std::string format = "text";    // or dot
  int rank = 0;
};
// Throws InvalidArgument for an unknown stage or format and a rank that is not there, and as step_graph does.
std::string graph_text(const GraphOptions& options);

}  // namespace tessera::tools
