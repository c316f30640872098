// How much of its own work a compilation looks at again.
#pragma once

namespace tessera::compiler {

// What a compilation makes sure of beside the graphs' soundness. Faults are of the planner's or the partitioner's
// making, or of a plan's from elsewhere; they end compilation, not training.
enum class Verification {
  kNone,
  kPlan,     // the plan (verify_plan), and this rank's own collectives: a few percent of the time
  kAllRanks  // also the local graphs of all ranks (verify_local), each of which is made for it, and a stage's memory by
             // simulation
};

}  // namespace tessera::compiler
