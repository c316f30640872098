// Which options of a command have an effect in which of its forms: an option that was given and has none is refused.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

// An OptionEffect is one row of a command's table.
struct OptionEffect {
  const char* name;       // "--rows"
  bool has_effect;        // on what the command line asks for
  std::string_view with;  // what the option has an effect on: "the printed table"
};

// Throws UsageError naming the first option that was given and has no effect. An option without a row always has one.
void require_effects(const CLI::App& command, const std::vector<OptionEffect>& uses);

// The rows of the options that add_step_options() adds, for a command that compiles the step for ranks (`is_compiled`),
// or shows it as it was traced, with its strategies (`has_strategies`) or without.
std::vector<OptionEffect> uses_of_step_options(const StepOptions& options, bool is_compiled, bool has_strategies);

}  // namespace tessera::tools
