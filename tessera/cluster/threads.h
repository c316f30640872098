// Runs the ranks of a job as threads of this process.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/cluster/context.h"
#include "tessera/comm/in_process.h"

namespace tessera::cluster {

struct ThreadsOptions {
  int64_t timeout_ms = 30000;   // deadline of every wait for a peer
  comm::Link link;              // simulated; instant by default
  int num_compute_threads = 0;  // per rank; 0: the cores divided by the ranks
  int ranks_per_host = 0;       // ranks pretend to be on hosts of so many; 0: on one
};

struct ThreadsResult {
  std::vector<int> codes;                  // what each rank's function returned
  std::vector<std::exception_ptr> errors;  // or threw
  int first_failed_rank = -1;              // -1: none; its error is set
};

// Calls f(context) on `num_ranks` threads, each with its own context, and waits for all of them. A rank that throws
// fails the job: the others' waits end at once. Throws InvalidArgument when num_ranks < 1.
ThreadsResult run_threads(int num_ranks, const ThreadsOptions& options, FunctionRef<int(Context&)> f);

}  // namespace tessera::cluster
