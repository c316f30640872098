// `tessera run`: starts a program as the ranks of a job on this host.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

// Adds the command to the application. `exit_code` becomes the job's.
void add_run_command(CLI::App& app, int& exit_code);

}  // namespace tessera::tools
