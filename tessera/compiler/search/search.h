// The search for the best way to split a graph over ranks: every operator, parameter and state at once, on every grid
// of the ranks, within a memory limit. It says how good what it found is: on the grids that it looked at, no plan costs
// less than the bound. A plan's cost is here PlanCost::searched_seconds(); docs/planning.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/compiler/search/search_problem.h"
#include "tessera/solver/solve.h"

namespace tessera::compiler {

enum class SearchAlgorithm {
  kCertified,             // bounds, local search and branch and bound (solver/solve.h)
  kDynamicProgramming,    // elimination of nodes with at most two neighbours; exact where that is all there is
  kRecursiveProgramming,  // axis by axis, operators with most work first, each the best beside those before it
};
// "certified", "dynamic_programming", "recursive_programming". Throws InvalidArgument listing them.
SearchAlgorithm parse_search_algorithm(const std::string& text);
std::string to_string(SearchAlgorithm algorithm);

struct SearchProgress {
  const mesh::Mesh& mesh;
  int mesh_number = 0;  // from 1
  int num_meshes = 0;
  solver::Progress solver;
  double best_cost = solver::kForbidden;  // the best of all meshes so far
};

// How far the simulation of a plan that was found is (choose_plan.h).
struct SimulationProgress {
  std::string plan;  // its origin
  size_t classes_done = 0;
  size_t num_classes = 0;  // of ranks; one of each is compiled
};

struct SearchOptions {
  SearchAlgorithm algorithm = SearchAlgorithm::kCertified;
  // Inputs that lie so already, or must. A mesh that cannot say it is left out.
  ShardingHints hints = {};
  // Results that are no new values are wanted whole on every rank.
  bool whole_results = false;
  // The most bytes that may live on a rank at a time, as the search counts them; 0: no limit.
  int64_t memory_limit_bytes = 0;
  // The grids that are looked at; none: all with up to `max_axes` axes.
  std::vector<mesh::Mesh> meshes = {};
  int max_axes = 2;
  // See SearchProblemOptions.
  bool use_all_ranks = false;
  int64_t slice_align_size = 1;
  // Operators whose choice is given, on the one mesh of `meshes`.
  std::map<ir::NodeId, NodeChoice> fixed = {};
  // Where a graph has more operators than this, and memory no limit, layers that are alike are split alike: they are
  // solved as one, and the bound is one on such plans.
  int fold_above = 2000;
  // Costs are seconds where these are 1: then the bound is one on sums of seconds.
  LanePrices prices = {};
  // How many of the best plans on other grids are kept, too.
  int num_others = 0;
  // How long the solver tries, for each mesh. Equal graphs, profiles and options have equal results without a timeout.
  int rounds = 50;
  // The limit holds for all meshes together; 0: none. Meshes that there is no time for stay unknown, and then nothing
  // is proven. Making the problem of one mesh is not interrupted.
  double timeout_seconds = 0;
  const Clock* clock = &Clock::system();
  // Once it is true, which any thread may make it, search() and choose_plan() throw Stopped: soon, for they look at it
  // where they look at the time, and for each operator and each value of a problem that they make.
  const std::atomic<bool>* stop = nullptr;
  double gap = 1e-3;
  uint64_t seed = 0;
  std::function<void(const SearchProgress&)> on_progress = {};
  std::function<void(const SimulationProgress&)> on_simulation = {};  // of plans that are compared
  PartitionOptions partition = {};
};

struct MeshOutcome {
  mesh::Mesh mesh;
  solver::Status status = solver::Status::kUnknown;
  double cost = solver::kForbidden;  // seconds; of the best that was found
  double bound = -solver::kForbidden;
  int64_t num_nodes = 0, num_edges = 0, num_choices = 0;  // the sizes of the problem
  double problem_seconds = 0, solve_seconds = 0;          // what making and solving it took
};

struct SearchResult {
  PlanChoices choices;
  // Seconds of a step, as the solver added them up: PlanCost::searched_seconds() of the plan where prices are 1. What
  // the plan itself adds up to, PlanCost::seconds(), may be less.
  double cost = 0;
  double bound = 0;        // no plan on any of the meshes costs less; minus infinity where the algorithm proves nothing
  int64_t live_bytes = 0;  // the most that live on a rank, as the search counts them (search_problem.h)
  bool is_folded = false;  // layers that are alike are split alike, and the bound is one on such plans
  std::vector<MeshOutcome> meshes;
  std::vector<PlanChoices> others;  // the best of other grids, the cheapest first
  double seconds = 0;               // what the search took

  // (cost - bound) / cost.
  double gap() const;
};

// `graph` is a whole step as plan_ranks() simplifies it. Throws InvalidArgument where a strategy fits no grid, hints
// contradict each other, or nothing fits into the memory limit; the message then has the smallest limit that does.
// Throws DeadlineOver where time was up before there was any plan.
SearchResult search(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
                    const SearchOptions& options = {});

// All grids of the ranks with 1 to `max_axes` axes, named "x", "y", ...; the last axis joins neighbours.
std::vector<mesh::Mesh> candidate_meshes(const std::vector<int>& ranks, int max_axes);

// The plan of what a search has chosen. `whole_results` as in the search.
Plan plan_of(const ir::Graph& graph, const PlanChoices& choices, bool whole_results = false);

}  // namespace tessera::compiler
