// add_report_command() adds `tessera report`.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

void add_report_command(CLI::App& app);

}  // namespace tessera::tools
