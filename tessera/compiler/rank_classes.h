// The ranks of a plan in classes that cannot be told apart: their values have equal shapes, they communicate with ranks
// of the same classes in the same way, as far apart. One schedule stands for all of a class, so that a simulation of
// thousands of ranks needs few.
#pragma once

#include <functional>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/cost/machine_profile.h"

namespace tessera::compiler {

struct RankClass {
  std::vector<int> ranks;  // ascending, but for a rank that stands for all (sample_classes()): it is the first
  ir::Schedule schedule;   // the schedule of the first
};

// The classes of a planned graph's ranks, in the order of their first ranks. Compiles one rank of each: classes are
// found from the plan, the groups and what the first rank communicates. Throws as compile_rank does, and
// DeadlineOver where there is no time for all of them.
std::vector<RankClass> schedule_classes(Compiled planned, const MachineProfile& profile,
                                        const ops::KernelCatalogue& catalogue, const CompileOptions& options = {});

// The same in fewer classes, where there are more than a limit.
struct RankSample {
  std::vector<RankClass> classes;
  // Whether ranks of one class may differ.
  bool is_coarse = false;
};
struct RankSampleOptions {
  size_t most_classes = 16;                                         // at least 1
  std::function<void(size_t done, size_t all)> on_class_done = {};  // after each class is compiled
};
// To keep within the limit ranks are told apart by less and less: not by where they stand in exchanges inside of
// operators; sizes of parts and of what is exchanged in eighths of the largest; not by what they exchange. Where that
// is not enough one rank stands for all, which has the largest parts and the most peers on other hosts. Throws as
// schedule_classes() does.
RankSample sample_classes(Compiled planned, const MachineProfile& profile, const ops::KernelCatalogue& catalogue,
                          const CompileOptions& options, const RankSampleOptions& sample);

}  // namespace tessera::compiler
