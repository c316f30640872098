// RunFacts: what a log's record of kind "run" says of the process that wrote it, and the command that starts it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/tools/report/step_facts.h"

namespace tessera::tools {

struct RunFacts {
  std::string time;
  int64_t step = 0;  // the process went on behind this one
  int64_t num_epochs = 0;
  int64_t num_ranks = 0;  // 0: not known, as of all numbers here
  int64_t ranks_of_host = 0;
  int64_t num_servers = 0;
  int64_t num_threads = 0;  // that a rank computes with
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> variables;  // of the environment, that the run read
  std::string directory;
  std::string transport;
  std::string job;
  std::string host;
  // All that it says, in words, for a table and to be compared: ("ranks", "4"), ("option precision", "bf16").
  std::vector<std::pair<std::string, std::string>> settings;
  std::optional<PlanFacts> plan;      // of the training step
  std::optional<MemoryFacts> memory;  // of the training step
};

// Reads such a record. Absent where the line is none; what it lacks stays empty.
std::optional<RunFacts> parse_run_facts(std::string_view line);

// What a shell is told to start the run again: `cd DIR`, then the command, with `tessera run -n N` before it where
// there were ranks, the number of threads, on which sums depend, and the variables by which it computes something else.
// A log that somebody else has written sets no others. "" where the command is not known.
std::string repeat_command(const RunFacts& facts);

// The word as a shell reads it as one word.
std::string shell_word(const std::string& word);

}  // namespace tessera::tools
