// What a schedule's memory is used for: what lives at its peak, who made that and who reads it last, and how much is
// alive from step to step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/schedule.h"

namespace tessera::compiler {

// One value, or the scratch memory of a step, that takes memory at the peak.
struct LivingValue {
  std::string name;  // "x", "%12"; "scratch", "reserved": of a bucket, for members that are not made yet
  std::string type;  // "f32[8,16]"; empty for what has none
  int64_t bytes = 0;
  int first = -1;            // the step that makes it; -1: before the first, an input
  int last = -1;             // the last that needs its memory
  std::string made_by;       // as name_of_step
  std::string last_read_by;  // empty: nobody in this schedule, it is a result
};

struct MemoryReport {
  int64_t arena_bytes = 0;      // all of it: parameters, states, and what is planned
  int64_t parameter_bytes = 0;  // what this rank holds
  int64_t state_bytes = 0;
  int64_t planned_bytes = 0;
  int64_t peak_bytes = 0;  // most of what is planned that is alive at once; planned_bytes is no less
  int peak_step = 0;
  std::string peak_name;             // as name_of_step
  std::vector<LivingValue> at_peak;  // largest first; together peak_bytes
  std::vector<int64_t> alive_bytes;  // what lives of the planned memory, by step

  // The most that the copy takes which a save makes while training goes on: beside the arena, in the same memory, which
  // is a device's where the arena is.
  int64_t snapshot_bytes() const { return parameter_bytes + state_bytes; }
};
// `local` is the graph that the schedule was made of.
MemoryReport report_memory(const ir::Graph& local, const ir::Schedule& schedule);

// "1.2 GiB of parameters and states, and at the peak, step 41, conv2d "stem", 3.4 GiB", and below it a line for each of
// the largest values that live there. `spilled_bytes` of the persistent ones lie in a file and are not counted.
std::string describe_peak(const ir::Graph& local, const ir::Schedule& schedule, int64_t spilled_bytes = 0);

// `conv2d "layer1.conv1"`, `wait for all_reduce`.
std::string name_of_step(const ir::Schedule& schedule, int step);

}  // namespace tessera::compiler
