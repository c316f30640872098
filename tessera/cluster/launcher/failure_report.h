// What a launcher says of a job that has failed: each error once, then which rank failed and how.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/cluster/launcher/launcher_output.h"
#include "tessera/cluster/launcher/rank_child.h"

namespace tessera::cluster {

struct FailedJob {
  std::span<RankChild> children;
  std::vector<int> ranks;  // of the children; none where one process has all ranks and has said its errors itself
  int num_ranks = 1;       // of the job
  int failed_rank = 0;     // that made the others fail
  int failed_place = 0;    // its process, among the children
  std::string how;         // it has ended
  // The loss that has ended the job, where this was its last generation, whose ranks save and end; "": it was none.
  std::string last_reason = {};
};

// Says how a process has ended. `start_error`: errno of a program that could not be started, or 0; `status`: as
// waitpid() gives it; `is_out_of_memory`: the system may have killed it.
std::string how_ended(int start_error, int status, bool is_out_of_memory);
// How many processes the system has killed for want of memory since it started, its own or that of a control group; 0
// where it does not say.
int64_t num_out_of_memory();
// Its command line is wrong, and stays so.
bool is_usage_error(int status);

// What was held back, that of the failed rank first; whoever stopped because of it says only where. Returns the job's
// exit code.
int report_failure(const FailedJob& job, LauncherOutput& err);

}  // namespace tessera::cluster
