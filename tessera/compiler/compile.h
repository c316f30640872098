// This is the way from a logical graph to a schedule, all stages in order. See compile.cc: it fits on a screen.
#pragma once

#include <string>

#include "tessera/base/deadline.h"
#include "tessera/compiler/partition/partition.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/plan/plan.h"
#include "tessera/compiler/schedule/fit_memory.h"
#include "tessera/compiler/schedule/make_schedule.h"
#include "tessera/compiler/verify/verification.h"

namespace tessera::compiler {

struct CompileOptions {
  Fusions fusions = {};
  Verification verification = Verification::kPlan;
  PlanOptions plan;
  PartitionOptions partition;
  ScheduleOptions schedule;
  // The most bytes of the arena; what does not fit is recomputed (fit_memory.h). 0: as much as it takes.
  int64_t memory_limit_bytes = 0;
  // Of compile_rank() and what calls it: DeadlineOver is thrown between two stages.
  Deadline deadline = {};
};

// What each stage made; `tessera graph --stage` prints them.
struct Compiled {
  ir::Graph logical;  // simplified
  Plan plan;
  ir::Graph local;
  GroupLists groups;
  ir::Schedule schedule;
  std::vector<RecomputedNode> recomputed;  // for the memory limit
};

// Throws InvalidArgument for a graph or a plan with faults, a hint or a rank that does not fit, an operator without a
// kernel, or a memory limit that cannot be met; InternalError for local graphs that are not what the plan says.
Compiled compile(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints, int rank,
                 const ir::PersistentLayout& persistent, const ops::KernelCatalogue& catalogue,
                 const CompileOptions& options = {});
// Compiles a graph that has its memory to itself: parameters and states lie as layout_of() says.
Compiled compile(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints, int rank,
                 const ops::KernelCatalogue& catalogue, const CompileOptions& options = {});

// The logical graph as it is planned: without dead, repeated and constant work.
ir::Graph simplify(const ir::Graph& graph);

// The parts of it. plan_ranks() makes what all ranks share: the simplified graph and the plan; compile_rank() then adds
// one rank's local graph and schedule, in place of another's.
Compiled plan_ranks(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints,
                    const CompileOptions& options = {});
void compile_rank(Compiled& planned, int rank, const ir::PersistentLayout& persistent,
                  const ops::KernelCatalogue& catalogue, const CompileOptions& options = {});
// The rank's pieces of a planned graph's parameters and states, in the order of the inputs.
ir::PersistentLayout layout_of(const Compiled& planned, int rank);

}  // namespace tessera::compiler
