// add_cluster_commands() adds `tessera scheduler` and `tessera cluster`.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

// Adds them to the application. `exit_code` becomes that of the command that ran.
void add_cluster_commands(CLI::App& app, int& exit_code);

}  // namespace tessera::tools
