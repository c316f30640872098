// `tessera bisect`: where the recorded values of two trainings part.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

void add_bisect_command(CLI::App& app);

}  // namespace tessera::tools
