// The options that say which step a command is about and how it is spread.
#pragma once

#include <CLI/CLI.hpp>

#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

void add_step_options(CLI::App& command, StepOptions& options);

}  // namespace tessera::tools
