#include "tessera/solver/solve.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tessera/base/thread.h"
#include "tessera/solver/bound.h"
#include "tessera/solver/core.h"
#include "tessera/solver/exact.h"
#include "tessera/solver/instance.h"
#include "tessera/solver/local_search.h"

namespace tessera::solver {
namespace {

// A round in costs looked at, of the search and of the dual: small enough to be interrupted, large enough for a thread.
constexpr int64_t kRoundWork = 20'000'000;
constexpr int64_t kBoundWork = 3 * kRoundWork;  // a dual's passes look at costs one after the other, which is faster
// Of a small problem a round looks at each cost so often.
constexpr int64_t kWorkPerCost = 100;
constexpr int kRoundsPerBeginning = 16;
constexpr int kSmall = 30;  // nodes that are searched through at once
constexpr int kFirstAttempts = 12;
constexpr int kFirstPasses = 3;
constexpr int64_t kExactSteps = 200'000;
constexpr double kRounding = 1e-9;  // a gap below this share of the cost is none: sums of doubles are not exact

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Solver {
 public:
  Solver(const Problem& core, const SolveOptions& options, std::chrono::steady_clock::time_point begin)
      : options_(options), begin_(begin), instance_(core), bound_(instance_), search_(instance_, options.seed) {
    const auto pairs = static_cast<int64_t>(instance_.num_pairs + instance_.cost.size());
    round_work_ = std::min(kRoundWork, kWorkPerCost * (pairs + 100));
  }

  Solution run() {
    Solution solution;
    if (instance_.num_nodes() <= kSmall) {
      bound_.price(bound_.prices(), 1);
      if (search_exactly_from(solution)) return solution;
    }
    find_first();
    std::vector<int> candidate = bound_.choices();
    std::vector<double> prices = bound_.prices();
    for (; solution.rounds < options_.rounds; ++solution.rounds) {
      // Both see what the other had found when the round began, so that their speeds do not matter.
      const double known = search_.best_cost();
      const auto improve = [&] {
        // What the dual suggests gets some rounds to become the best.
        const int phase = solution.rounds % kRoundsPerBeginning;
        if (phase == 0) search_.begin(candidate, prices);
        if (phase == kRoundsPerBeginning / 2) search_.restart();
        search_.improve(prices, round_work_);
      };
      ThreadGroup other;
      if (!other.try_start(improve)) improve();
      bound_.raise(known, kBoundWork);
      other.join();
      candidate = bound_.choices();
      prices = bound_.prices();
      solution.bound = bound_.value();
      solution.cost = search_.best_cost();
      if (solution.bound == kForbidden) {
        is_infeasible_ = true;
        return solution;
      }
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
    Bound bound(instance_);
    double price = 0;
    for (int attempt = 0; attempt < kFirstAttempts && !search_.has_solution(); ++attempt) {
      const std::vector<double> prices(static_cast<size_t>(instance_.num_points), price);
      bound.price(prices, kFirstPasses);
      search_.begin(bound.choices(), prices);
      price = price == 0 ? (costs + 1) / (usages + 1) : 8 * price;
      if (is_late()) return;
    }
  }

  // True where nothing is left to be found.
  bool search_exactly_from(Solution& solution) {
    const ExactResult exact = search_exactly(instance_, bound_.relaxation(), bound_.dual(), solution.cost, kExactSteps);
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
      search_.begin(exact.choices, bound_.prices());
      solution.choices.clear();
    }
    return false;
  }

  bool is_met(const Solution& solution) const {
    const double gap = std::max(options_.gap, kRounding);
    return solution.cost != kForbidden && solution.cost - solution.bound <= gap * std::abs(solution.cost);
  }
  bool is_late() const { return options_.timeout_seconds > 0 && seconds_since(begin_) > options_.timeout_seconds; }

  const SolveOptions& options_;
  std::chrono::steady_clock::time_point begin_;
  Instance instance_;
  Bound bound_;
  LocalSearch search_;
  int64_t round_work_ = kRoundWork;
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
  const bool met = solution.cost - solution.bound <= std::max(options.gap, kRounding) * std::abs(solution.cost);
  solution.status = met ? Status::kOptimal : Status::kFeasible;
  if (met && options.gap == 0) solution.bound = solution.cost;
  return solution;
}

}  // namespace tessera::solver
