// What the command `tessera` says of a command line that it does not understand: the word, the nearest one that it
// knows, the usage of the command that was meant.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

// What the values of options must be: a time, up to a longest one; a time to wait for another rank; a share of
// something, a number that counts something from `least` on, a text of bytes as 2GiB.
CLI::Validator positive_seconds(double at_most = std::numeric_limits<double>::infinity());
CLI::Validator seconds_to_wait();
CLI::Validator fraction();
CLI::Validator count_from(int64_t least);
CLI::Validator bytes();
// A file whose name ends so, as ".ckpt"; what file names begin with, in one folder.
CLI::Validator file_ending_in(const std::string& suffix);
CLI::Validator file_prefix();
// [ADDRESS:]PORT of a dashboard.
CLI::Validator dashboard_place();
// HOST:PORT of a scheduler, and what begins the node ids of its ranks: visible characters, few enough for "/N" behind
// them.
CLI::Validator scheduler_address();
CLI::Validator node_ids();

// Throws IoError naming the option where no file can be written there, before the work whose result it is to have. ""
// is none.
void require_writable(const char* option, const std::string& file);

// Whole milliseconds of a time that positive_seconds() has let through: rounded up, so that no time becomes none, and
// at most those of the longest wait.
int64_t milliseconds_of(double seconds);

// Prints "error: unknown option --devces; did you mean --devices?", the usage and where all options are listed, or the
// help or version that was asked for. Without a command prints the whole help. Returns the exit code. `arguments`: the
// command line, behind the program.
int exit_for(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments);

// `tessera run` gives all that follows the program's name to the program, and the library takes an option that it does
// not know for that name. Prints the same of an option before the program that `run` does not have, and returns the
// exit code; nothing where all are known. `words` follow the command's name.
std::optional<int> refuse_option_before_program(const CLI::App& run, const std::vector<std::string>& words);

}  // namespace tessera::tools
