// `tessera trace`: joins what the ranks of a job have recorded, says what a timeline tells, and writes it for Perfetto.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

void add_trace_command(CLI::App& app);

}  // namespace tessera::tools
