// Benchmarks of several processes of this host that the program starts itself; rank 0 is the program.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/function_ref.h"
#include "tessera/cluster/launch.h"

namespace tessera::benchmarks {

// How rank `rank` of the processes that this program started takes its place in their job. It waits for ever: rounds
// begin when they are asked for.
inline cluster::JobOptions job_of_processes(int rank, int num_ranks) {
  return {.rank = rank,
          .size = num_ranks,
          .store = fmt::format("unix:tessera-benchmark-{}", getpgrp()),
          .timeout_ms = 3'600'000,
          .num_compute_threads = 1};
}

// Calls serve(rank) in `num_ranks` processes, which end with this one. Before any thread is started. Returns the
// program's exit code.
inline int run_processes(int num_ranks, FunctionRef<void(int)> serve) {
  setpgid(0, 0);
  std::vector<pid_t> children;
  for (int rank = 1; rank < num_ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw IoError("cannot start rank {}", rank);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        serve(rank);
        _exit(0);
      } catch (const std::exception& error) {
        fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        _exit(1);
      }
    }
    children.push_back(child);
  }
  serve(0);
  int code = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) code = 1;
  }
  return code;
}

// Zeroed memory that processes started later share with this one.
inline void* map_common(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw IoError("cannot map {} bytes", bytes);
  return memory;
}

}  // namespace tessera::benchmarks
