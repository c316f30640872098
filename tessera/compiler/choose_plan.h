// How the plan that a job runs is made of what a search finds. A search minimises a sum; a step is none: communication
// hides behind computing, operators are fused. So what was searched is simulated, communication is priced by how much
// of it the simulation leaves exposed, and the search is made again, a few times. The plan whose simulated step is
// shortest is taken; plain data parallel and what the user's own strategies say are always among those that are
// compared.
#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/predict.h"
#include "tessera/compiler/search/plan_record.h"
#include "tessera/compiler/search/search.h"

namespace tessera::compiler {

// One of the plans that were compared.
struct PlanCandidate {
  std::string origin;  // "search", "search on [x=4, y=2]", "priced search 1", "data parallel", "given strategies"
  PlanChoices choices;
  PlanPrediction prediction;
};

struct ChosenPlan {
  PlanRecord record;
  std::vector<PlanCandidate> candidates;    // in the order in which they were found
  size_t chosen = 0;                        // the index among the candidates
  bool is_data_parallel = false;            // nothing that was found is faster by more than kWorthwhile
  double simulated_seconds = 0;             // what a step takes; infinite where the taken plan was not simulated
  double data_parallel_seconds = 0;         // likewise; infinite where it does not fit, or what is given rules it out
  bool is_data_parallel_ruled_out = false;  // whether strategies or layouts that are given rule it out
  int64_t peak_memory_bytes = 0;            // the size of a rank's arena
  std::string warning;                      // uneven_warning() of the plan
  std::vector<std::string> left_out;        // because time was up: "simulating the search's plan"
  // The search by sums of seconds. Its bound is one on such sums (PlanCost::searched_seconds), of all plans, whatever
  // memory they take. Where time was up before it had a plan, its cost is infinite, and it has no grids.
  SearchResult search;
  // What the last search was told to keep within, by its own count; 0: no limit.
  int64_t search_limit_bytes = 0;

  const PlanCandidate& taken() const { return candidates[chosen]; }
  // Which plan was taken, and why: "data parallel: nothing that was found is faster by 5 % or more".
  std::string reason() const;
  // "left out because time was up: ..."; empty where nothing was.
  std::string left_out_text() const;
  // "simulated by fewer kinds of ranks than there are: ..."; empty where each kind was.
  std::string coarse_text() const;
  // One line: "880 operators on [x=2]; a step is predicted to take 110.19 ms and 179.0 MiB a rank, ..."
  std::string summary(const ir::Graph& graph) const;
};

// A plan must be so much faster than data parallel, as a share of its time, to be preferred to it: predictions of plans
// of one network err by some percent against each other (docs/planning.md).
inline constexpr double kWorthwhile = 0.05;

// `graph` as plan_ranks() simplifies it. Deterministic unless there is a timeout, which counts from the call: data
// parallel is planned and simulated whatever it takes, half of what is left of the time is for the search, and what has
// not been simulated when time is up is left out, so that no longer passes beyond it than one problem's making, or one
// rank's lowering, takes. Where neither data parallel nor anything that was simulated can be taken, the search's plan
// is taken as it is. The memory limit is
// that of the planned memory, a rank's arena. Where the best plan of all does not fit, plans that need less stand
// against computing values again for their gradients; the search is then told a limit of its own count that leads
// there. Strategies, layouts and choices that are given hold in every candidate. Throws as search() does.
ChosenPlan choose_plan(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
                       const SearchOptions& options);

// The batch split over all ranks: data inputs by their first dim, operators follow. An input whose hint says otherwise
// lies as the hint says, and its readers take their rows of it. Throws InvalidArgument where no grid holds all hints.
PlanChoices data_parallel_choices(const ir::Graph& graph, const std::vector<int>& ranks, const ShardingHints& hints,
                                  bool whole_results);
// What a plan on one mesh has chosen.
PlanChoices choices_of(const ir::Graph& graph, const Plan& plan);

}  // namespace tessera::compiler
