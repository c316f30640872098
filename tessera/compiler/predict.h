// What a plan costs, by a simulation of its step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/base/deadline.h"
#include "tessera/compiler/rank_classes.h"
#include "tessera/compiler/search/search.h"
#include "tessera/compiler/simulate.h"

namespace tessera::compiler {

// What a simulation says of a plan.
struct SimulatedPlan {
  Simulation simulation;
  // The schedule of the class that takes longest. Null where it was let go: those of a thousand ranks are large.
  std::shared_ptr<const ir::Schedule> slowest_schedule;
  // Whether there were too many classes of ranks to simulate all of them: then fewer stand for all (sample_classes()).
  bool is_coarse = false;
  int64_t peak_memory_bytes = 0;     // of the rank that takes most
  int64_t peak_unlimited_bytes = 0;  // without computing anything twice
  bool fits = true;                  // into the memory limit; otherwise nothing is computed twice
  bool is_cut_short = false;         // there was no time to find out whether computing again makes it fit

  // The class that takes longest: the first of those that are alike.
  const ClassSimulation& slowest() const;
};
// How long a simulation may take, and who is told how far it is.
struct SimulationTime {
  // Until there is a schedule for each class of ranks, and these are simulated; then DeadlineOver is thrown.
  Deadline first = {};
  // Until it is known whether computing again makes fit what does not.
  Deadline fitting = {};
  std::function<void(size_t done, size_t all)> on_class_done = {};  // after each class of ranks is compiled
};
// How many classes of ranks are simulated at most of a plan of a graph with so many operators: compiling them all takes
// no longer than some seconds.
size_t most_classes(int num_operators);
// The kernels are those of no machine in particular, because plans are compared. What does not fit into the memory
// limit (0: none) is computed again, if that is enough (fit_memory.h).
SimulatedPlan simulate_plan(const ir::Graph& graph, const Plan& plan, const MachineProfile& profile,
                            int64_t memory_limit_bytes, const PartitionOptions& partition = {},
                            const SimulationTime& time = {});

struct PlanPrediction {
  double step_seconds = solver::kForbidden;  // infinite where it does not fit
  double communication_seconds = 0;          // what the collectives of the slowest rank take
  int64_t peak_memory_bytes = 0;             // of the rank that takes most
  int64_t peak_unlimited_bytes = 0;          // without computing anything twice
  // How much of a second of communication is exposed, by lane; 1 for a lane that has nothing to do.
  LanePrices exposed = {};
  // In detail; null where there was no time for it: then nothing else is known either.
  std::shared_ptr<const SimulatedPlan> simulated;
};
// What a plan costs, within the options' memory limit. Throws as simulate_plan does.
PlanPrediction predict(const ir::Graph& graph, const PlanChoices& choices, const MachineProfile& profile,
                       const SearchOptions& options = {}, const SimulationTime& time = {});

}  // namespace tessera::compiler
