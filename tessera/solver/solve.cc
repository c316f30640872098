#include "tessera/solver/solve.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/deadline.h"
#include "tessera/base/thread.h"
#include "tessera/solver/bounds/bound.h"
#include "tessera/solver/bounds/usage_prices.h"
#include "tessera/solver/core.h"
#include "tessera/solver/exact.h"
#include "tessera/solver/local_search.h"
#include "tessera/solver/problem/instance.h"

namespace tessera::solver {
namespace {

// A round in costs looked at, of the search and of the dual: small enough to be interrupted, large enough for a thread.
constexpr int64_t kRoundWork = 20'000'000;
constexpr int64_t kBoundWork = 3 * kRoundWork;  // a dual's passes look at costs one after the other, which is faster
// Of a small problem a round looks at each cost so often.
constexpr int64_t kWorkPerCost = 100;
// A problem of more costs than these gets more rounds, so that each cost is looked at as often.
constexpr int kRoundsPerBeginning = 16;
constexpr int64_t kUsualCosts = 2'000'000;
constexpr int kSmall = 30;  // nodes that are searched through at once
constexpr int kFirstPasses = 3;
constexpr int kPricePasses = 30;  // until the limit holds nearly everywhere
constexpr int64_t kExactSteps = 200'000;
constexpr double kRounding = 1e-9;  // a gap below this share of the cost is none: sums of doubles are not exact

class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), begin_ns_(clock.monotonic_ns()) {}
  double seconds() const { return 1e-9 * static_cast<double>(clock_.monotonic_ns() - begin_ns_); }

 private:
  const Clock& clock_;
  int64_t begin_ns_;
};

class Solver {
 public:
  Solver(Problem core, const SolveOptions& options, const Stopwatch& watch, const Deadline& deadline)
      : options_(options),
        watch_(watch),
        deadline_(deadline),
        core_(std::move(core)),
        instance_(core_),
        bound_(instance_, deadline),
        search_(instance_, options.seed, deadline) {
    const auto pairs = static_cast<int64_t>(instance_.num_pairs + instance_.cost.size());
    round_work_ = std::min(kRoundWork, kWorkPerCost * (pairs + 100));
    rounds_per_beginning_ *= static_cast<int>(std::clamp<int64_t>(pairs / kUsualCosts, 1, 1000));
  }

  Solution run() {
    Solution solution;
    if (instance_.num_nodes() <= kSmall) {
      bound_.price(bound_.prices(), 1);
      if (search_exactly_from(solution)) return solution;
    }
    Profile& profile = solution.profile;
    profile.reduction = watch_.seconds();
    find_first();
    profile.first = watch_.seconds() - profile.reduction;
    if (search_.has_solution()) profile.first_solution = watch_.seconds();
    std::vector<int> candidate = bound_.choices();
    std::vector<double> prices = bound_.prices();
    for (; solution.rounds < options_.rounds; ++solution.rounds) {
      // Both see what the other had found when the round began, so that their speeds do not matter.
      const double known = search_.best_cost();
      const auto improve = [&] {
        // What the dual suggests gets some rounds to become the best.
        const Stopwatch watch(*options_.clock);
        const int phase = solution.rounds % rounds_per_beginning_;
        if (phase == 0 && (solution.rounds > 0 || !search_.has_solution())) search_.begin(candidate, prices);
        if (phase == rounds_per_beginning_ / 2) search_.restart();
        search_.improve(prices, round_work_);
        profile.search += watch.seconds();
      };
      ThreadGroup other;
      if (!other.try_start(improve)) improve();
      const Stopwatch watch(*options_.clock);
      bound_.raise(known, kBoundWork);
      profile.bound += watch.seconds();
      other.join();
      if (search_.has_solution() && profile.first_solution < 0) profile.first_solution = watch_.seconds();
      candidate = bound_.choices();
      prices = bound_.prices();
      solution.bound = bound_.value();
      solution.cost = search_.best_cost();
      if (solution.bound == kForbidden) {
        is_infeasible_ = true;
        return solution;
      }
      if (options_.on_progress) {
        options_.on_progress({solution.rounds + 1, watch_.seconds(), solution.cost, solution.bound});
      }
      if (is_met(solution) || solution.bound >= options_.cutoff || deadline_.is_over()) {
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
  // A solution to begin with, however dear. High prices leave costs where the bound would not find back from, so that
  // another one is used for it.
  void find_first() {
    Bound bound(instance_, deadline_);
    std::vector<double> prices = bound.prices();
    ThreadGroup other;
    // Memory is given back beside it: at the end there would be no time for it where a problem has 200,000 nodes.
    const auto give_back = [&] { core_ = {}; };
    if (!other.try_start(give_back)) give_back();
    bound.price(prices, kFirstPasses);
    for (int i = 0; i < kPricePasses && raise_prices(instance_, bound.choices(), prices) && !deadline_.is_over(); ++i) {
      bound.price(prices, 1);
    }
    const auto price = [&] { bound_.price(bound.prices(), 1); };
    other.join();
    if (!other.try_start(price)) price();
    search_.begin(bound.choices(), prices);
  }

  // True where nothing is left to be found.
  bool search_exactly_from(Solution& solution) {
    const Stopwatch watch(*options_.clock);
    const ExactResult exact = search_exactly(instance_, bound_.relaxation(), bound_.dual(), solution.cost, kExactSteps);
    solution.profile.exact += watch.seconds();
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

  const SolveOptions& options_;
  const Stopwatch& watch_;
  const Deadline& deadline_;
  Problem core_;  // laid out as the instance
  Instance instance_;
  Bound bound_;
  LocalSearch search_;
  int64_t round_work_ = kRoundWork;
  int rounds_per_beginning_ = kRoundsPerBeginning;
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
  const Stopwatch watch(*options.clock);
  const Deadline deadline = Deadline::of_timeout(*options.clock, options.timeout_seconds).until(options.stop);
  validate(problem);
  Solution solution;
  if (problem.nodes.empty()) return {.status = Status::kOptimal, .choices = {}, .cost = 0, .bound = 0};
  Core core(problem, deadline);
  if (core.is_infeasible()) {
    solution.status = Status::kInfeasible;
    return solution;
  }
  Solver solver(core.take_problem(), options, watch, deadline);
  solution = solver.run();
  if (solver.is_infeasible()) {
    solution.seconds = watch.seconds();
    solution.status = Status::kInfeasible;
    return solution;
  }
  if (solution.choices.empty()) {
    solution.seconds = watch.seconds();
    return solution;
  }
  solution.choices = core.original(solution.choices);
  // The cost by the definition; what the search added up on its way may be off by a rounding.
  solution.cost = evaluate(problem, solution.choices).cost;
  solution.bound = std::min(solution.bound, solution.cost);
  const bool met = solution.cost - solution.bound <= std::max(options.gap, kRounding) * std::abs(solution.cost);
  solution.status = met ? Status::kOptimal : Status::kFeasible;
  if (met && options.gap == 0) solution.bound = solution.cost;
  solution.seconds = watch.seconds();
  return solution;
}

}  // namespace tessera::solver
