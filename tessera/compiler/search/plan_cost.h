// What a plan costs, whoever made it: the same sums that a search minimises, but counted straight from the plan, as the
// partitioner carries it out. A value that several read in one sharding is moved once. What the graph returns is read
// behind its last node, and lives until then; a new value that lies where its parameter does takes that one's place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/partition/partition.h"
#include "tessera/compiler/plan/plan.h"

namespace tessera::compiler {

// What a node costs the rank with the largest parts.
struct NodeCost {
  double compute_seconds = 0;
  // Communication within the operator: halos, statistics.
  double own_seconds = 0;
  // What moving its operands to where it wants them takes, where no earlier reader has moved them.
  double way_seconds = 0;
  int64_t received_bytes = 0;  // in both
  int64_t result_bytes = 0;
  // The bytes of all values that live while it runs; parameters, states and data inputs included.
  int64_t live_bytes = 0;
};

struct PlanCost {
  std::vector<NodeCost> nodes;  // by NodeId
  // What results cost, and new values on their way to where parameters and states lie, where no node has moved them.
  double output_seconds = 0;
  int64_t output_bytes = 0;
  // Sums, and the most that lives at a time.
  double compute_seconds = 0;
  double communication_seconds = 0;
  // What a search counts beside these: moves of values to where they are already (searched_seconds).
  double repeated_seconds = 0;
  int64_t received_bytes = 0;
  // The part of these that are rows that change ranks, where a dim that is split unevenly is merged or cut.
  int64_t reshape_bytes = 0;
  // What is there all the time: parameters, states and, beside them, data inputs.
  int64_t persistent_bytes = 0;
  int64_t peak_bytes = 0;

  double seconds() const { return compute_seconds + communication_seconds; }
  // What a search adds up for this plan, and what its bound is one on: as if each reader moved a value itself from
  // where all of them take it (Plan::source_layout), also to where another one has moved it, or where it was made.
  // Never below seconds(). Infinite for plans that no search finds: a reader takes parts of sums as they are made,
  // others a copy that is complete.
  double searched_seconds() const { return seconds() + repeated_seconds; }
};

PlanCost cost_of_plan(const ir::Graph& graph, const Plan& plan, const MachineProfile& profile,
                      const PartitionOptions& options = {});

// Where reshapes exchange much of what a rank receives: how much, why, and what to do. Otherwise the text is empty.
std::string uneven_warning(const PlanCost& cost, int num_ranks);

}  // namespace tessera::compiler
