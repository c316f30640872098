// The last step of a compilation: what runs when, and where in memory each value lies.
#pragma once

#include <functional>

#include "tessera/ir/graph.h"
#include "tessera/ir/schedule.h"
#include "tessera/ops/kernel_catalogue.h"

namespace tessera::compiler {

struct ScheduleOptions {
  // Every value in memory of its own, nothing in place: what the debug executor runs.
  bool share_memory = true;
  bool channels_last = true;
  // The host does not reach the arena: compile_rank() adds the copies (host_copies.h).
  bool host_copies = false;
  // Then: whether the device communicates with those of these ranks by itself. Empty: with none.
  std::function<bool(const Ints& ranks)> communicates_there = {};
  // Of the job: all of them must see one loss where a gate of each one's device looks at it in place of the host.
  int num_ranks = 1;
  // So many steps a buffer's memory lies idle before another gets it: steps that could then be done at the same time
  // need not wait for it.
  int idle_steps = 0;
  // Collectives go on beside what does not need them; otherwise each is waited for where it starts.
  bool overlap = true;
  // So many of the persistent bytes lie in a file: no limit of memory counts them.
  int64_t spilled_bytes = 0;
};
// Orders the steps, places the collectives' starts and waits, works in place where the kernels allow, and gives every
// value its offset. Nothing persistent is written before the output "loss" has been checked. Throws InvalidArgument for
// a parameter that the layout does not have.
ir::Schedule make_schedule(const ir::Graph& local, const ir::PersistentLayout& persistent,
                           const ops::KernelCatalogue& catalogue, const ScheduleOptions& options = {});

}  // namespace tessera::compiler
