// What a shell completes behind the word `tessera`: commands, options, and the values of options that have a few.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::tools {

// The text of `tessera completion SHELL`, for "bash", "zsh" or "fish": what that shell reads once to complete the
// commands and options of `app` and below. Where none fits the shell completes names of files. What follows the program
// of a command such as `tessera run` is left to the shell.
std::string completion_text(const CLI::App& app, const std::string& shell);

}  // namespace tessera::tools
