// The ranks of a plan in classes that cannot be told apart: their values have equal shapes, they communicate with ranks
// of the same classes in the same way, as far apart. One schedule stands for all of a class, so that a simulation of
// thousands of ranks needs few.
#pragma once

#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/cost/machine_profile.h"

namespace tessera::compiler {

struct RankClass {
  std::vector<int> ranks;  // ascending
  ir::Schedule schedule;   // the schedule of the first
};

// The classes of a planned graph's ranks, in the order of their first ranks. Compiles one rank of each: classes are
// found from the plan, the groups and what the first rank communicates. Throws as compile_rank does, and
// DeadlineOver where there is no time for all of them.
std::vector<RankClass> schedule_classes(Compiled planned, const MachineProfile& profile,
                                        const ops::KernelCatalogue& catalogue, const CompileOptions& options = {});

}  // namespace tessera::compiler
