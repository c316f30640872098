// What a plan costs, whoever made it: the same sums that a search minimises, but counted straight from the plan, as the
// partitioner carries it out. A value that several read in one sharding is moved once.
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
  double own_seconds = 0;  // communication within the operator: halos, statistics
  double way_seconds =
      0;  // what moving its operands to where it wants them takes, where no earlier reader has moved them
  int64_t received_bytes = 0;  // in both
  int64_t result_bytes = 0;
  int64_t live_bytes = 0;  // the bytes of all values that live while it runs; parameters and states included
};

struct PlanCost {
  std::vector<NodeCost> nodes;  // by NodeId
  // What results cost, and new values on their way to where parameters and states lie.
  double output_seconds = 0;
  int64_t output_bytes = 0;
  // Sums, and the most that lives at a time.
  double compute_seconds = 0;
  double communication_seconds = 0;
  int64_t received_bytes = 0;
  int64_t reshape_bytes =
      0;  // the part of these that are rows that change ranks, where a dim that is split unevenly is merged or cut
  int64_t persistent_bytes = 0;  // parameters, states and inputs
  int64_t peak_bytes = 0;

  double seconds() const { return compute_seconds + communication_seconds; }
};

PlanCost cost_of_plan(const ir::Graph& graph, const Plan& plan, const MachineProfile& profile,
                      const PartitionOptions& options = {});

// Where reshapes exchange much of what a rank receives: how much, why, and what to do. Otherwise the text is empty.
std::string uneven_warning(const PlanCost& cost, int num_ranks);

}  // namespace tessera::compiler
