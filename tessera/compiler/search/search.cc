#include "tessera/compiler/search/search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/plan/mesh_choice.h"
#include "tessera/compiler/search/recursive_search.h"
#include "tessera/solver/elimination.h"
#include "tessera/solver/problem/fold.h"

namespace tessera::compiler {
namespace {

using mesh::Mesh;

// Rounds after which a grid whose bound is above another's cost is given up.
constexpr int kFirstRounds = 2;

// The hints in terms of the mesh; nullopt where it cannot say them.
std::optional<ShardingHints> restated(const ShardingHints& hints, const Mesh& mesh) {
  ShardingHints result;
  for (const auto& [name, layout] : hints) {
    const MeshChoice choice(mesh, nullptr, std::vector<mesh::Layout>{layout});
    if (choice.meshes().size() != 1 || !(choice.mesh(0) == mesh)) return std::nullopt;
    result[name] = {mesh, choice.restate(layout).sharding};
  }
  return result;
}

bool holds_strategies(const Mesh& mesh, const ir::Graph& graph) {
  const MeshChoice choice(mesh, &graph, {});
  return choice.meshes().size() == 1 && choice.mesh(0) == mesh;
}

// A grid and the problem on it.
struct Candidate {
  Candidate(const ir::Graph& graph, const Mesh& mesh, const MachineProfile& profile, const SearchOptions& options,
            ShardingHints hints)
      : costs(mesh, profile, options.partition),
        problem_options{.hints = std::move(hints),
                        .fixed = options.fixed,
                        .use_all_ranks = options.use_all_ranks,
                        .slice_align_size = options.slice_align_size,
                        .whole_results = options.whole_results,
                        .memory_limit_bytes = options.memory_limit_bytes,
                        .prices = options.prices,
                        .stop = Deadline().until(options.stop)},
        problem(graph, costs, problem_options),
        outcome{.mesh = mesh} {
    if (graph.num_nodes() > options.fold_above && options.memory_limit_bytes == 0 &&
        options.algorithm == SearchAlgorithm::kCertified) {
      folded = solver::fold(problem.problem(), problem.classes());
    }
    const auto& made = solved();
    outcome.num_nodes = static_cast<int64_t>(made.nodes.size());
    outcome.num_edges = static_cast<int64_t>(made.edges.size());
    for (const auto& node : made.nodes) outcome.num_choices += static_cast<int64_t>(node.costs.size());
  }
  // What the solver sees.
  const solver::Problem& solved() const { return folded ? folded->problem : problem.problem(); }

  CostModel costs;
  SearchProblemOptions problem_options;
  SearchProblem problem;
  std::optional<solver::FoldedProblem> folded;
  MeshOutcome outcome;
  std::vector<int> solution;
};

class Search {
 public:
  Search(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
         const SearchOptions& options)
      : graph_(graph),
        ranks_(ranks),
        profile_(profile),
        options_(options),
        deadline_(Deadline::of_timeout(*options.clock, options.timeout_seconds).until(options.stop)) {}

  SearchResult run() {
    make_candidates();
    const bool one_pass = candidates_.size() == 1 || options_.algorithm != SearchAlgorithm::kCertified;
    for (auto& candidate : candidates_) {
      if (!is_late() || best_cost() == solver::kForbidden) solve(*candidate, one_pass ? options_.rounds : kFirstRounds);
    }
    if (!one_pass && !is_late()) {
      // The most promising first: what it reaches may rule out the others. After so few rounds bounds say more than
      // costs do.
      std::stable_sort(candidates_.begin(), candidates_.end(),
                       [](const auto& a, const auto& b) { return a->outcome.bound < b->outcome.bound; });
      for (auto& candidate : candidates_) {
        if (is_late()) break;
        if (candidate->outcome.bound < best_cost() && !is_met(candidate->outcome)) solve(*candidate, options_.rounds);
      }
    }
    return result();
  }

 private:
  void make_candidates() {
    auto meshes = options_.meshes.empty() ? candidate_meshes(ranks_, options_.max_axes) : options_.meshes;
    add_candidates(meshes);
    if (!candidates_.empty()) return;
    // Strategies may need a finer grid than any with so few axes.
    const MeshChoice choice(Mesh({{"x", static_cast<int>(ranks_.size())}}, ranks_), &graph_, {});
    if (choice.meshes().size() == 1) add_candidates({choice.mesh(0)});
    if (!candidates_.empty()) return;
    throw InvalidArgument(
        "no grid of {} ranks holds all strategies and layouts that are given: their numbers of parts do not nest",
        ranks_.size());
  }

  void add_candidates(const std::vector<Mesh>& meshes) {
    for (const Mesh& mesh : meshes) {
      deadline_.throw_if_stopped();
      if (!holds_strategies(mesh, graph_)) continue;
      auto hints = restated(options_.hints, mesh);
      if (!hints) continue;
      if (is_late() && !candidates_.empty()) {
        left_out_.push_back({.mesh = mesh});
        continue;
      }
      const int64_t begin_ns = now_ns();
      candidates_.push_back(std::make_unique<Candidate>(graph_, mesh, profile_, options_, std::move(*hints)));
      candidates_.back()->outcome.problem_seconds = seconds_since(begin_ns);
    }
  }

  void solve(Candidate& candidate, int rounds) {
    ++number_;
    const int64_t begin_ns = now_ns();
    const auto& problem = candidate.solved();
    solver::Solution found;
    if (options_.algorithm == SearchAlgorithm::kCertified) {
      solver::SolveOptions solving{.rounds = rounds,
                                   .clock = options_.clock,
                                   .stop = options_.stop,
                                   .gap = options_.gap,
                                   .cutoff = best_cost(),
                                   .seed = options_.seed};
      if (options_.timeout_seconds > 0) solving.timeout_seconds = std::max(deadline_.seconds_left(), 1e-3);
      if (options_.on_progress) {
        solving.on_progress = [&](const solver::Progress& progress) {
          options_.on_progress({candidate.outcome.mesh, std::min<int>(number_, static_cast<int>(candidates_.size())),
                                static_cast<int>(candidates_.size()), progress, best_cost()});
        };
      }
      found = solver::solve(problem, solving);
    } else if (options_.algorithm == SearchAlgorithm::kDynamicProgramming) {
      found = solver::solve_by_elimination(problem, *options_.clock, deadline_.without_time());
    } else {
      found = search_recursively(graph_, candidate.problem, *options_.clock, deadline_);
    }
    deadline_.throw_if_stopped();
    auto& outcome = candidate.outcome;
    outcome.solve_seconds += seconds_since(begin_ns);
    outcome.bound = std::max(outcome.bound, found.bound);
    if (outcome.status == solver::Status::kUnknown || found.cost < outcome.cost) {
      outcome.status = found.status;
      outcome.cost = found.cost;
      candidate.solution =
          candidate.folded && !found.choices.empty() ? candidate.folded->unfold(found.choices) : found.choices;
    }
  }

  int64_t now_ns() const { return options_.clock->monotonic_ns(); }
  double seconds_since(int64_t begin_ns) const { return 1e-9 * static_cast<double>(now_ns() - begin_ns); }
  bool is_late() const { return deadline_.is_over(); }

  bool is_met(const MeshOutcome& outcome) const {
    return outcome.status == solver::Status::kInfeasible ||
           outcome.cost - outcome.bound <= options_.gap * std::abs(outcome.cost);
  }

  double best_cost() const {
    double best = solver::kForbidden;
    for (const auto& candidate : candidates_) best = std::min(best, candidate->outcome.cost);
    return best;
  }

  SearchResult result() {
    SearchResult result;
    std::vector<const Candidate*> found;
    result.bound = solver::kForbidden;
    for (const auto& candidate : candidates_) {
      const auto& outcome = candidate->outcome;
      if (!candidate->solution.empty()) found.push_back(candidate.get());
      if (outcome.status != solver::Status::kInfeasible) result.bound = std::min(result.bound, outcome.bound);
      result.meshes.push_back(outcome);
    }
    for (const auto& outcome : left_out_) {
      result.bound = -solver::kForbidden;
      result.meshes.push_back(outcome);
    }
    if (found.empty()) refuse();
    std::stable_sort(found.begin(), found.end(),
                     [](const auto* a, const auto* b) { return a->outcome.cost < b->outcome.cost; });
    const Candidate* best = found[0];
    for (size_t i = 1; i < std::min(found.size(), static_cast<size_t>(options_.num_others) + 1); ++i) {
      result.others.push_back(found[i]->problem.choices_of(found[i]->solution));
    }
    result.choices = best->problem.choices_of(best->solution);
    result.live_bytes = solver::evaluate(best->problem.problem(), best->solution).peak_usage;
    result.is_folded = best->folded.has_value();
    result.cost = best->outcome.cost;
    result.bound = std::min(result.bound, result.cost);
    result.seconds = seconds_since(begin_ns_);
    return result;
  }

  // Nothing was found: looks for the smallest limit with which something is.
  [[noreturn]] void refuse() {
    const bool is_unknown = std::any_of(candidates_.begin(), candidates_.end(), [](const auto& candidate) {
      return candidate->outcome.status == solver::Status::kUnknown;
    });
    if (is_late() && (is_unknown || !left_out_.empty())) {
      throw DeadlineOver(fmt::format("no plan of {} on {} ranks was found within {:.3g} s: allow a longer time",
                                     graph_.name(), ranks_.size(), options_.timeout_seconds));
    }
    if (options_.memory_limit_bytes == 0) {
      throw InvalidArgument("no plan of {} is possible: the layouts and strategies that are given exclude each other",
                            graph_.name());
    }
    int64_t least = solver::kNoLimit;
    for (const auto& candidate : candidates_) {
      const int64_t reached = smallest_limit(candidate->problem.problem());
      if (reached > 0) least = std::min(least, reached);
    }
    throw InvalidArgument(
        "no plan of {} on {} ranks fits into {} a rank; the smallest that was found takes {}; use more ranks, a "
        "smaller "
        "batch or a higher memory limit",
        graph_.name(), ranks_.size(), format_bytes(options_.memory_limit_bytes), format_bytes(least));
  }

  // The peak of the plan that takes least memory, as far as a short search finds it; 0: none.
  int64_t smallest_limit(solver::Problem problem) const {
    for (auto& node : problem.nodes) {
      const double life = static_cast<double>(node.end - node.begin);
      for (size_t i = 0; i < node.costs.size(); ++i) {
        if (node.costs[i] != solver::kForbidden) node.costs[i] = life * static_cast<double>(node.usages[i]);
      }
    }
    for (auto& edge : problem.edges) {
      for (double& cost : edge.costs.own()) cost = cost == solver::kForbidden ? cost : 0;
    }
    problem.usage_limit = solver::kNoLimit;
    int64_t reached = 0;
    // What takes least over all time is not what takes least at its peak: the limit is pulled down from there.
    for (int attempt = 0; attempt < 6; ++attempt) {
      const auto found = solver::solve(problem, {.rounds = 2, .clock = options_.clock, .stop = options_.stop});
      deadline_.throw_if_stopped();
      if (found.choices.empty()) break;
      reached = solver::evaluate(problem, found.choices).peak_usage;
      problem.usage_limit = reached - std::max<int64_t>(reached / 50, 1);
    }
    return reached;
  }

  const ir::Graph& graph_;
  const std::vector<int>& ranks_;
  const MachineProfile& profile_;
  const SearchOptions& options_;
  const Deadline deadline_;
  std::vector<std::unique_ptr<Candidate>> candidates_;
  std::vector<MeshOutcome> left_out_;  // grids that there was no time for
  int number_ = 0;
  const int64_t begin_ns_ = now_ns();
};

void add_meshes(int left, int max_axes, std::vector<int>& sizes, const std::vector<int>& ranks,
                std::vector<Mesh>& meshes) {
  if (left == 1 && !sizes.empty()) {
    std::vector<mesh::Axis> axes;
    for (const int size : sizes) axes.push_back({std::string(1, static_cast<char>('x' + axes.size())), size});
    meshes.emplace_back(std::move(axes), ranks);
    return;
  }
  if (static_cast<int>(sizes.size()) == max_axes) return;
  for (int size = left; size >= 2; --size) {
    if (left % size != 0) continue;
    sizes.push_back(size);
    add_meshes(left / size, max_axes, sizes, ranks, meshes);
    sizes.pop_back();
  }
}

}  // namespace

SearchAlgorithm parse_search_algorithm(const std::string& text) {
  for (const auto algorithm :
       {SearchAlgorithm::kCertified, SearchAlgorithm::kDynamicProgramming, SearchAlgorithm::kRecursiveProgramming}) {
    if (text == to_string(algorithm)) return algorithm;
  }
  throw InvalidArgument(
      "search algorithm \"{}\" is not known; there are: certified, dynamic_programming, "
      "recursive_programming",
      text);
}

std::string to_string(SearchAlgorithm algorithm) {
  switch (algorithm) {
    case SearchAlgorithm::kCertified: return "certified";
    case SearchAlgorithm::kDynamicProgramming: return "dynamic_programming";
    case SearchAlgorithm::kRecursiveProgramming: return "recursive_programming";
  }
  return "certified";
}

double SearchResult::gap() const { return cost == bound ? 0 : (cost - bound) / std::max(std::abs(cost), 1e-300); }

SearchResult search(const ir::Graph& graph, const std::vector<int>& ranks, const MachineProfile& profile,
                    const SearchOptions& options) {
  if (ranks.empty()) throw InvalidArgument("a search needs at least one rank");
  if (options.max_axes < 1 || options.max_axes > 3) {
    throw InvalidArgument("a search looks at grids of 1 to 3 axes, got {}", options.max_axes);
  }
  if (options.slice_align_size < 1) {
    throw InvalidArgument("slice_align_size must be at least 1, got {}", options.slice_align_size);
  }
  return Search(graph, ranks, profile, options).run();
}

std::vector<Mesh> candidate_meshes(const std::vector<int>& ranks, int max_axes) {
  if (ranks.size() == 1) return {Mesh({{"x", 1}}, ranks)};
  std::vector<Mesh> meshes;
  std::vector<int> sizes;
  add_meshes(static_cast<int>(ranks.size()), max_axes, sizes, ranks, meshes);
  return meshes;
}

Plan plan_of(const ir::Graph& graph, const PlanChoices& choices, bool whole_results) {
  return propagate(
      graph, choices.mesh, on_mesh(choices.mesh, choices.inputs),
      {.strategies = false, .whole_results = whole_results, .fixed = choices.nodes, .copies = choices.copies});
}

}  // namespace tessera::compiler
