// The way from a logical graph to a schedule, all stages in order. See pipeline.cc: it fits on a screen.
#pragma once

#include <string>

#include "tessera/compiler/partition.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/plan.h"

namespace tessera::compiler {

struct CompileOptions {
  bool fuse = true;
  PlanOptions plan;
  PartitionOptions partition;
  ScheduleOptions schedule;
};

// What each stage made; `tessera graph --stage` prints them.
struct Compiled {
  ir::Graph logical;  // simplified
  Plan plan;
  ir::Graph local;
  GroupLists groups;
  ir::Schedule schedule;
};

// Throws InvalidArgument for a graph with faults, a hint or a rank that does not fit, or an operator without a kernel.
Compiled compile(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints, int rank,
                 const ir::PersistentLayout& persistent, const ops::KernelCatalogue& catalogue,
                 const CompileOptions& options = {});

}  // namespace tessera::compiler
