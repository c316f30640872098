// The options that say which step a command is about and how it is spread.
#pragma once

#include <CLI/CLI.hpp>

#include "tessera/tools/arguments/stages_command.h"
#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

void add_step_options(CLI::App& command, StepOptions& options);
// Adds --machine, --tf32 and --devices_per_host: the machines that a command predicts for.
void add_machine_options(CLI::App& command, MachineOptions& options);
// --stages, with that help, --micro_batches and --schedule.
void add_stage_options(CLI::App& command, StagesCommand& options, const std::string& stages_help);

}  // namespace tessera::tools
