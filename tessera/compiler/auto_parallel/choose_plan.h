// From a search to the plan that a job runs: what the search added up is put in order by a simulation, which knows of
// fusion, overlap and the planned memory, and stands against plain data parallel.
#pragma once

#include "tessera/compiler/auto_parallel/plan_record.h"
#include "tessera/compiler/auto_parallel/search.h"

namespace tessera::compiler {

struct ChosenPlan {
  PlanRecord record;
  bool is_data_parallel = false;     // nothing that was found is faster by more than kWorthwhile
  double simulated_seconds = 0;      // of a step
  double data_parallel_seconds = 0;  // likewise; infinite where data parallel does not fit into the memory limit
  int64_t peak_memory_bytes = 0;     // of a rank's arena
  SearchResult search;

  // One line: "880 operators on [x=2]; a step is predicted to take 110.19 ms and 179.0 MiB a rank, ..."
  std::string summary(const ir::Graph& graph) const;
};

struct PlanPrediction {
  double step_seconds = solver::kForbidden;  // infinite where it does not fit
  int64_t peak_memory_bytes = 0;             // of the rank that takes most
  int64_t peak_unlimited_bytes = 0;          // without computing anything twice
};
// What a simulation says of a plan, with kernels of no machine in particular: what is compared is plans. What does not
// fit into the options' memory limit is computed again, if that is enough (fit_memory.h).
PlanPrediction predict(const ir::Graph& graph, const PlanChoices& choices, const MachineProfile& profile,
                       const SearchOptions& options = {});

// A plan must be so much faster than data parallel, as a share of its time, to be preferred to it.
inline constexpr double kWorthwhile = 0.01;

// `graph` as plan_ranks() simplifies it. Deterministic. The memory limit is that of the planned memory, a rank's arena.
// Where the best plan of all does not fit, plans that need less stand against computing values again for their
// gradients; the search is then told a limit of its own count that leads there. Throws as search() does.
ChosenPlan choose_plan(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
                       const SearchOptions& options);

// The batch split over all ranks: data inputs by `hints`, or by their first dim; operators follow.
PlanChoices data_parallel_choices(const ir::Graph& graph, const std::vector<int>& ranks, const ShardingHints& hints,
                                  bool whole_results);
// What a plan on one mesh has chosen.
PlanChoices choices_of(const ir::Graph& graph, const Plan& plan);

}  // namespace tessera::compiler
