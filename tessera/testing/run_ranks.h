// run_ranks: a cluster in one process, for tests. Every rank is a thread with its own Context.
//     run_ranks(3, [](cluster::Context& context) { EXPECT_EQ(context.size(), 3); });
#pragma once

#include "tessera/base/function_ref.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/comm/memory/in_process.h"

namespace tessera {

struct RunRanksOptions {
  int64_t timeout_ms = 30000;   // deadline of every wait for a peer
  comm::SimulatedLink link;     // a simulated slow link, e.g. {.latency_us = 50, .gigabytes_per_second = 1}
  int num_compute_threads = 1;  // per rank
  int ranks_per_host = 0;       // ranks pretend to be on hosts of so many; 0: on one
};

// Calls f(context) on n threads and returns when all have ended. When ranks fail, throws the error of the one that
// failed first, `rank R: ` before its message; InvalidArgument, IoError and InternalError keep their type, others
// become Error.
void run_ranks(int n, FunctionRef<void(cluster::Context&)> f, const RunRanksOptions& options = {});

}  // namespace tessera
