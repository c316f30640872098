// A schedule within a memory limit: where the arena would be larger, values of the forward pass are dropped and
// computed again for their gradients, those first that cost the least time for each byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/compiler/schedule/make_schedule.h"

namespace tessera::compiler {

// A node that is computed twice.
struct RecomputedNode {
  std::string name;    // conv2d "layer1.conv1"
  int64_t bytes = 0;   // the bytes of its results that are not kept
  double seconds = 0;  // that it takes once more, on a rank of 150 GFLOP/s that moves 15 GB/s
};

struct FittedSchedule {
  ir::Graph local;
  ir::Schedule schedule;
  std::vector<RecomputedNode> recomputed;  // in the order of the graph; empty where all fits as it is
};

// The schedule of a local graph whose arena takes at most `limit_bytes` of memory, parameters and states included, but
// for the bytes that the options say lie in a file. No collective is repeated, so that each rank decides for itself;
// results are equal to the last bit, as the same kernels compute them. Throws InvalidArgument that says by how much it
// does not fit and what lives at the peak; DeadlineOver between two schedules that are tried.
FittedSchedule fit_memory(const ir::Graph& local, const ir::PersistentLayout& persistent,
                          const ops::KernelCatalogue& catalogue, const ScheduleOptions& options, int64_t limit_bytes,
                          const Deadline& deadline = kNoDeadline);

}  // namespace tessera::compiler
