// `tessera plan`: its options, and which of its forms is asked for.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

void add_plan_command(CLI::App& app, int& exit_code);

}  // namespace tessera::tools
