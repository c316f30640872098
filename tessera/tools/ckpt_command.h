// `tessera ckpt`: looks into checkpoints, compares, converts and verifies them.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::tools {

// Adds the command. When it runs it prints, and sets `exit_code` to 1 where what it looked at is damaged or differs.
void add_ckpt_command(CLI::App& app, int& exit_code);

}  // namespace tessera::tools
