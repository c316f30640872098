// Runs the ranks of a job as threads of this process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/comm/memory/in_process.h"

namespace tessera::cluster {

struct ThreadsResult {
  std::vector<int> codes;                  // what each rank's function returned
  std::vector<std::exception_ptr> errors;  // or threw
  int first_failed_rank = -1;              // -1: none; its error is set, also where it has returned a code
};

// A rank that has not ended though the job has failed, and what its thread is doing (describe_thread).
struct HungRank {
  int rank = 0;
  std::string doing;
};

struct ThreadsOptions {
  int64_t timeout_ms = 30000;   // deadline of every wait for a peer
  comm::SimulatedLink link;     // simulated; instant by default
  int num_compute_threads = 0;  // per rank; 0: the cores divided by the ranks
  int num_servers = 0;          // so many of the first ranks keep parameters
  int ranks_per_host = 0;       // ranks pretend to be on hosts of so many; 0: on one
  // Whether a thread looks on, which warns of ranks that stand still or are slow, and writes reports, where that is a
  // folder (report/rank_watch.h).
  bool is_watched = false;
  std::string report_directory = {};
  int figures_fd = -1;                      // as in JobOptions
  timeline::TimelineOptions timeline = {};  // what is recorded of the ranks, and where
  // A thread cannot be ended from outside. When one has not ended `grace_ms` after another has failed, this is called
  // once, with what is known by then, and may end the process; run_threads waits on when it returns.
  int64_t grace_ms = 3000;
  std::function<void(const ThreadsResult&, const std::vector<HungRank>&)> on_hang = {};
};

// Calls f(context) on `num_ranks` threads, each with its own context, and waits for all of them. A rank that throws, or
// returns another code than 0, fails the job: the others' waits end at once. Where the system has no room for as many
// compute threads, ranks get fewer, with a warning. Throws InvalidArgument when num_ranks < 1, IoError, before any rank
// has begun, where there is no room for a thread of each.
ThreadsResult run_threads(int num_ranks, const ThreadsOptions& options, FunctionRef<int(Context&)> f);

// What a rank that threw has said.
std::string message_of(const std::exception_ptr& error);

}  // namespace tessera::cluster
