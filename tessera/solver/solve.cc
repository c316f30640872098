#include "tessera/solver/solve.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "tessera/solver/dual.h"
#include "tessera/solver/exact.h"
#include "tessera/solver/free_nodes.h"
#include "tessera/solver/instance.h"
#include "tessera/solver/local_search.h"
#include "tessera/solver/reduce.h"

namespace tessera::solver {
namespace {

// A round in costs looked at, of the search and of the dual: small enough to be interrupted, large enough for a thread.
constexpr int64_t kRoundWork = 20'000'000;
// Of a small problem a round looks at each cost so often.
constexpr int64_t kWorkPerCost = 100;
constexpr int kPassesPerPrice = 2;
constexpr int kRoundsPerBeginning = 16;
constexpr int kSmall = 30;  // nodes that are searched through at once
constexpr int kFirstAttempts = 12;
constexpr int kFirstPasses = 3;
constexpr int64_t kExactSteps = 200'000;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What is left of a problem when all that can be decided without search is.
class Core {
 public:
  explicit Core(const Problem& problem) : problem_(reduced(problem)) {
    // What is decided of some nodes lets choices of others go, and those further nodes.
    while (!is_infeasible_) {
      auto free = take_out_free_nodes(std::move(problem_));
      problem_ = std::move(free.problem);
      if (free.taken.empty()) break;
      steps_.push_back([free = std::move(free)](const std::vector<int>& choices) { return free.original(choices); });
      problem_ = reduced(problem_);
    }
  }

  const Problem& problem() const { return problem_; }
  bool is_infeasible() const { return is_infeasible_; }
  // The original's choices for those of problem().
  std::vector<int> original(std::vector<int> choices) const {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) choices = (*step)(choices);
    return choices;
  }

 private:
  Problem reduced(const Problem& problem) {
    auto made = reduce(problem);
    is_infeasible_ = made.infeasible;
    Problem smaller = std::move(made.problem);
    steps_.push_back([made = std::move(made)](const std::vector<int>& choices) { return made.original(choices); });
    return smaller;
  }

  bool is_infeasible_ = false;
  std::vector<std::function<std::vector<int>(const std::vector<int>&)>> steps_;
  Problem problem_;
};

class Solver {
 public:
  Solver(const Problem& core, const SolveOptions& options, std::chrono::steady_clock::time_point begin)
      : options_(options), begin_(begin), instance_(core), dual_(instance_), search_(instance_, options.seed) {
    const auto pairs = static_cast<int64_t>(instance_.by_u.size() + instance_.cost.size());
    passes_ = static_cast<int>(std::clamp<int64_t>(kRoundWork / (2 * pairs + 1), 1, 50));
    round_work_ = std::min(kRoundWork, kWorkPerCost * (pairs + 100));
  }

  Solution run() {
    Solution solution;
    if (instance_.num_nodes() <= kSmall) {
      dual_.pass();
      if (search_exactly_from(solution)) return solution;
    }
    find_first();
    std::vector<int> candidate = dual_.choices();
    std::vector<double> prices = dual_.prices();
    for (; solution.rounds < options_.rounds; ++solution.rounds) {
      // Both see what the other had found when the round began, so that their speeds do not matter.
      const double known = search_.best_cost();
      std::thread other([&] {
        // What the dual suggests gets some rounds to become the best.
        const int phase = solution.rounds % kRoundsPerBeginning;
        if (phase == 0) search_.begin(candidate, prices);
        if (phase == kRoundsPerBeginning / 2) search_.restart();
        search_.improve(prices, round_work_);
      });
      raise_bound(known);
      other.join();
      candidate = dual_.choices();
      prices = best_prices_;
      solution.bound = bound_;
      solution.cost = search_.best_cost();
      if (options_.on_progress) {
        options_.on_progress({solution.rounds + 1, seconds_since(begin_), solution.cost, solution.bound});
      }
      if (is_met(solution) || solution.bound >= options_.cutoff || is_late()) {
        ++solution.rounds;
        break;
      }
      // A small rest is searched through, ever more rarely.
      if ((solution.rounds & (solution.rounds + 1)) == 0 && search_exactly_from(solution)) {
        ++solution.rounds;
        break;
      }
    }
    if (search_.has_solution() && solution.choices.empty()) solution.choices = search_.best();
    return solution;
  }
  // Whether the search has shown that there is no solution.
  bool is_infeasible() const { return is_infeasible_; }

 private:
  // A solution to begin with, however dear: usage has one price at all times, which rises until the limit holds.
  void find_first() {
    double costs = 0;
    double usages = 0;
    for (int n = 0; n < instance_.num_nodes(); ++n) {
      costs += std::abs(instance_.costs_of(n)[0]);
      const double life = instance_.last_point[static_cast<size_t>(n)] - instance_.first_point[static_cast<size_t>(n)];
      usages += life * static_cast<double>(instance_.usages_of(n)[0]);
    }
    Dual dual(instance_);
    double price = 0;
    for (int attempt = 0; attempt < kFirstAttempts && !search_.has_solution(); ++attempt) {
      const std::vector<double> prices(static_cast<size_t>(instance_.num_points), price);
      dual.set_prices(prices);
      for (int i = 0; i < kFirstPasses; ++i) dual.pass();
      search_.begin(dual.choices(), prices);
      price = price == 0 ? (costs + 1) / (usages + 1) : 8 * price;
      if (is_late()) return;
    }
  }

  void raise_bound(double known) {
    for (int i = 0; i < passes_; ++i) {
      dual_.pass();
      if (dual_.bound() > bound_) {
        bound_ = dual_.bound();
        best_prices_ = dual_.prices();
      }
      if (i % kPassesPerPrice == 0) dual_.follow_usage(known);
    }
  }

  // True where nothing is left to be found.
  bool search_exactly_from(Solution& solution) {
    const ExactResult exact = search_exactly(instance_, dual_, solution.cost, kExactSteps);
    if (!exact.choices.empty()) {
      solution.choices = exact.choices;
      solution.cost = exact.cost;
    }
    if (exact.complete) {
      if (!exact.choices.empty() || search_.has_solution()) {
        solution.bound = solution.cost;
        if (exact.choices.empty()) solution.choices = search_.best();
      } else {
        is_infeasible_ = true;
      }
      return true;
    }
    if (!exact.choices.empty()) {
      search_.begin(exact.choices, best_prices_);
      solution.choices.clear();
    }
    return false;
  }

  bool is_met(const Solution& solution) const {
    return solution.cost != kForbidden && solution.cost - solution.bound <= options_.gap * std::abs(solution.cost);
  }
  bool is_late() const { return options_.timeout_seconds > 0 && seconds_since(begin_) > options_.timeout_seconds; }

  const SolveOptions& options_;
  std::chrono::steady_clock::time_point begin_;
  Instance instance_;
  Dual dual_;
  LocalSearch search_;
  int passes_ = 1;
  int64_t round_work_ = kRoundWork;
  double bound_ = -kForbidden;
  std::vector<double> best_prices_;
  bool is_infeasible_ = false;
};

}  // namespace

std::string to_string(Status status) {
  switch (status) {
    case Status::kOptimal: return "optimal";
    case Status::kFeasible: return "feasible";
    case Status::kInfeasible: return "infeasible";
    case Status::kUnknown: return "unknown";
  }
  return "unknown";
}

double Solution::gap() const {
  if (cost == bound) return 0;
  return (cost - bound) / std::max(std::abs(cost), 1e-300);
}

Solution solve(const Problem& problem, const SolveOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  validate(problem);
  Solution solution;
  if (problem.nodes.empty()) return {.status = Status::kOptimal, .choices = {}, .cost = 0, .bound = 0};
  const Core core(problem);
  if (core.is_infeasible()) {
    solution.status = Status::kInfeasible;
    return solution;
  }
  Solver solver(core.problem(), options, begin);
  solution = solver.run();
  solution.seconds = seconds_since(begin);
  if (solver.is_infeasible()) {
    solution.status = Status::kInfeasible;
    return solution;
  }
  if (solution.choices.empty()) return solution;
  solution.choices = core.original(solution.choices);
  // The cost by the definition; what the search added up on its way may be off by a rounding.
  solution.cost = evaluate(problem, solution.choices).cost;
  solution.bound = std::min(solution.bound, solution.cost);
  const bool met = solution.cost - solution.bound <= std::max(options.gap, 1e-9) * std::abs(solution.cost);
  solution.status = met ? Status::kOptimal : Status::kFeasible;
  if (met && options.gap == 0) solution.bound = solution.cost;
  return solution;
}

}  // namespace tessera::solver
