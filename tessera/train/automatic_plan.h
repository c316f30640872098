// The plan of a training step in automatic parallelism: rank 0 searches, all ranks take what it has found.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/cluster/context.h"
#include "tessera/compiler/auto_parallel/choose_plan.h"
#include "tessera/session/session.h"

namespace tessera::train {

// How fast these ranks are, all at work, and the world's collectives; takes a fraction of a second. Every rank calls
// it; all get the same.
compiler::MachineProfile measure_briefly(cluster::Context& context);

struct AutomaticPlanOptions {
  // What is put in order by a simulation, and stands against data parallel by a percent, need not be proven further.
  compiler::SearchOptions search = {.rounds = 16, .gap = 5e-3};
  // Absent: measure_briefly().
  std::optional<compiler::MachineProfile> profile = std::nullopt;
  // A planner of one's own, in place of the search: from the step as it is planned to the choices for it.
  std::function<compiler::PlanRecord(const ir::Graph&)> planner = {};
  // A plan that `tessera plan --out` or an earlier run wrote, in place of a search; "": none.
  std::string load_file = {};
  std::string save_file = {};  // where rank 0 writes the plan; "": nowhere
};

// The plan for a step; `graph` as it was traced. Rank 0 says in one line what it is. Every rank calls it; throws what
// rank 0's search throws, on all ranks, and InvalidArgument naming the rank whose graph is another than rank 0's.
std::shared_ptr<const compiler::PlanRecord> plan_automatically(cluster::Context& context, const ir::Graph& graph,
                                                               const AutomaticPlanOptions& options);

}  // namespace tessera::train
