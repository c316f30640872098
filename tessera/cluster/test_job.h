// Runs rank_program as a job, for tests.
#pragma once

#include <string>
#include <vector>

#include "tessera/cluster/launch.h"

namespace tessera {

std::string rank_program();

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
  double seconds = 0;
};

// launch() with `arguments` for rank_program, its outputs captured.
Outcome run_job(const std::vector<std::string>& arguments, cluster::LaunchOptions options);
// A shell command, with both outputs in `out`.
Outcome run_command(const std::string& command);

// "checksum 0123456789abcdef": what run_collective_script gives on `size` ranks that are threads, on hosts of so many.
std::string checksum_of_threads(int size, int ranks_per_host = 0);

}  // namespace tessera
