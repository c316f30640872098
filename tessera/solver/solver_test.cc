// Claims about the solver: it equals brute force on small problems, what it says holds by the definition, equal calls
// have equal results, and files are read or refused.
#include "tessera/solver/solve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/solver/bounds/bound.h"
#include "tessera/solver/bounds/dual.h"
#include "tessera/solver/bounds/usage_prices.h"
#include "tessera/solver/core.h"
#include "tessera/solver/elimination.h"
#include "tessera/solver/exact.h"
#include "tessera/solver/local_search.h"
#include "tessera/solver/problem/fold.h"
#include "tessera/solver/problem/free_nodes.h"
#include "tessera/solver/problem/instance.h"
#include "tessera/solver/problem/problem_json.h"
#include "tessera/solver/problem/smaller_problem.h"
#include "tessera/solver/problem/time_points.h"
#include "tessera/solver/usage_tree.h"
#include "tessera/testing/contest_problem.h"
#include "tessera/testing/ticking_clock.h"

namespace tessera::solver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) { return random_below({.seed = seed_}, next_++, n); }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

// Up to eight nodes of up to four choices; some costs forbidden; limits from never broken to impossible.
Problem random_problem(uint64_t seed) {
  Draws draws(seed);
  Problem problem{.name = fmt::format("random {}", seed), .nodes = {}, .edges = {}};
  const int64_t nodes = 1 + draws.below(8);
  int64_t total = 0;
  for (int64_t n = 0; n < nodes; ++n) {
    ProblemNode node{.begin = draws.below(10), .end = 0, .costs = {}, .usages = {}};
    node.end = node.begin + draws.below(8);
    const int64_t choices = 1 + draws.below(4);
    for (int64_t i = 0; i < choices; ++i) {
      node.costs.push_back(draws.below(15) == 0 ? kForbidden : static_cast<double>(draws.below(100) - 20));
      node.usages.push_back(draws.below(20));
      total += node.usages.back();
    }
    problem.nodes.push_back(node);
  }
  const int64_t edges = draws.below(2 * nodes);
  for (int64_t e = 0; e < edges; ++e) {
    Edge edge{static_cast<int>(draws.below(nodes)), static_cast<int>(draws.below(nodes)), {}};
    const size_t pairs = problem.nodes[static_cast<size_t>(edge.u)].costs.size() *
                         problem.nodes[static_cast<size_t>(edge.v)].costs.size();
    for (size_t i = 0; i < pairs; ++i) {
      edge.costs.own().push_back(draws.below(8) == 0 ? kForbidden : static_cast<double>(draws.below(60)));
    }
    problem.edges.push_back(edge);
  }
  problem.usage_limit = total / 8 + draws.below(total / 3 + 2);
  return problem;
}

// The least cost of all choices, kForbidden where none is feasible.
double brute_force(const Problem& problem) {
  std::vector<int> choices(problem.nodes.size(), 0);
  double least = kForbidden;
  while (true) {
    const Evaluation evaluation = evaluate(problem, choices);
    if (evaluation.feasible) least = std::min(least, evaluation.cost);
    size_t n = 0;
    while (n < choices.size() && ++choices[n] == static_cast<int>(problem.nodes[n].costs.size())) choices[n++] = 0;
    if (n == choices.size()) return least;
  }
}

TEST(Solve, EqualsBruteForceAndProvesIt) {
  int infeasible = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Problem problem = random_problem(seed);
    const double expected = brute_force(problem);
    const Solution solution = solve(problem);
    if (expected == kForbidden) {
      EXPECT_EQ(solution.status, Status::kInfeasible) << problem.name;
      ++infeasible;
      continue;
    }
    ASSERT_EQ(solution.status, Status::kOptimal) << problem.name;
    EXPECT_EQ(solution.cost, expected) << problem.name;
    EXPECT_EQ(solution.gap(), 0) << problem.name;
    const Evaluation evaluation = evaluate(problem, solution.choices);
    EXPECT_TRUE(evaluation.feasible) << problem.name;
    EXPECT_EQ(evaluation.cost, solution.cost) << problem.name;
  }
  EXPECT_GT(infeasible, 10);
  EXPECT_LT(infeasible, 250);
}

TEST(Solve, IsAFunctionOfItsArguments) {
  const Problem problem = random_problem(7);
  const Solution a = solve(problem, {.rounds = 5, .seed = 3});
  const Solution b = solve(problem, {.rounds = 5, .seed = 3});
  EXPECT_EQ(a.choices, b.choices);
  EXPECT_EQ(a.bound, b.bound);
}

TEST(Solve, TellsOfItsProgress) {
  int calls = 0;
  const auto solution = solve(random_problem(3), {.rounds = 3, .on_progress = [&](const Progress& progress) {
                                                    ++calls;
                                                    EXPECT_EQ(progress.round, calls);
                                                    EXPECT_LE(progress.bound, progress.cost);
                                                  }});
  EXPECT_EQ(calls, solution.rounds);
}

TEST(Solve, ALargeProblemHasASolutionWithinAShortLimitAndEndsThere) {
  const Problem problem = testing::contest_problem(5000, 1);
  // 2,000 questions; between two of them lie some trees or a pass.
  const TickingClock clock(500'000);
  const Solution solution = solve(problem, {.rounds = 1 << 30, .timeout_seconds = 1, .clock = &clock});
  EXPECT_EQ(solution.status, Status::kFeasible);
  EXPECT_TRUE(evaluate(problem, solution.choices).feasible);
  EXPECT_GE(solution.profile.first_solution, 0);
  EXPECT_LT(solution.profile.first_solution, 1.0 / 3);
  EXPECT_LT(clock.num_questions(), 2'100);
}

TEST(Solve, StopsAtOnceWhereNoTimeIsLeft) {
  const Problem problem = testing::contest_problem(5000, 2);
  const TickingClock clock(10'000'000'000);
  const Solution solution = solve(problem, {.rounds = 1 << 30, .timeout_seconds = 1, .clock = &clock});
  EXPECT_LE(solution.rounds, 1);
  EXPECT_LT(clock.num_questions(), 100);
}

TEST(Solve, EndsSoonAfterItIsStoppedWithWhatWasFound) {
  const Problem problem = testing::contest_problem(2000, 1);
  std::atomic<bool> stop = false;
  SolveOptions options{.rounds = 1 << 30, .stop = &stop};
  options.on_progress = [&](const Progress& progress) { stop = progress.round == 2; };
  const Solution solution = solve(problem, options);
  EXPECT_EQ(solution.rounds, 2);
  EXPECT_TRUE(evaluate(problem, solution.choices).feasible);
}

TEST(Solve, ATimeoutBeyondWhatAClockCountsIsNone) {
  const Problem problem = testing::contest_problem(50, 1);
  const Solution without = solve(problem, {.rounds = 5});
  for (const double seconds : {4e9, 1e10, 1e300, std::numeric_limits<double>::infinity()}) {
    const FakeClock clock;
    EXPECT_FALSE(Deadline(clock, seconds).is_over()) << seconds;
    const Solution solution = solve(problem, {.rounds = 5, .timeout_seconds = seconds});
    EXPECT_EQ(solution.rounds, without.rounds) << seconds;
    EXPECT_EQ(solution.choices, without.choices) << seconds;
  }
}

TEST(LocalSearch, MakesABeginningFeasible) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Core core(testing::contest_problem(2000, seed));
    const Instance instance(core.problem());
    LocalSearch search(instance, seed);
    // Neighbours at odds, and far too much in use.
    search.begin(std::vector<int>(core.problem().nodes.size(), 0),
                 std::vector<double>(static_cast<size_t>(instance.num_points), 0.0));
    EXPECT_TRUE(search.has_solution()) << seed;
  }
}

TEST(Prices, RiseWhereTheLimitIsBroken) {
  Problem problem{.name = "", .nodes = {}, .edges = {}, .usage_limit = 10};
  problem.nodes.push_back({.begin = 0, .end = 1, .costs = {1, 2}, .usages = {20, 5}});
  problem.nodes.push_back({.begin = 1, .end = 2, .costs = {1, 2}, .usages = {30, 5}});
  const Instance instance(problem);
  std::vector<double> prices(2, 0.0);
  EXPECT_TRUE(raise_prices(instance, {0, 1}, prices));
  EXPECT_GT(prices[0], 0);
  EXPECT_EQ(prices[1], 0);
  EXPECT_FALSE(raise_prices(instance, {1, 1}, prices));
}

TEST(ContestProblem, IsAFunctionOfItsArguments) {
  const Problem a = testing::contest_problem(1000, 3);
  const Problem b = testing::contest_problem(1000, 3);
  const std::vector<int> choices(a.nodes.size(), 0);
  EXPECT_GT(a.nodes.size(), 500U);
  EXPECT_EQ(a.usage_limit, b.usage_limit);
  EXPECT_EQ(evaluate(a, choices).peak_usage, evaluate(b, choices).peak_usage);
  EXPECT_FALSE(evaluate(a, choices).feasible);
}

TEST(Solve, AProblemWithoutNodesCostsNothing) {
  const Solution solution = solve({});
  EXPECT_EQ(solution.status, Status::kOptimal);
  EXPECT_EQ(solution.cost, 0);
  EXPECT_TRUE(solution.choices.empty());
}

TEST(Reduce, KeepsTheLeastCost) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Problem problem = random_problem(seed);
    const ReducedProblem reduced = reduce(problem);
    const double expected = brute_force(problem);
    if (reduced.infeasible) {
      EXPECT_EQ(expected, kForbidden) << problem.name;
      continue;
    }
    EXPECT_EQ(brute_force(reduced.problem), expected) << problem.name;
    const std::vector<int> first(reduced.problem.nodes.size(), 0);
    EXPECT_EQ(evaluate(reduced.problem, first).cost, evaluate(problem, reduced.original(first)).cost) << problem.name;
  }
}

TEST(Fold, IsTheBestOfChoicesThatAreAlike) {
  // A chain of equal links, each with a node at its side, closed into a ring: the last edge joins the first class with
  // itself.
  constexpr int kLinks = 3;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    uint64_t draws = 0;
    const auto costs = [&](size_t count) {
      std::vector<double> drawn(count);
      for (double& cost : drawn) cost = random_open_uniform({.seed = seed}, draws++);
      return drawn;
    };
    const auto node = costs(3);
    const auto side = costs(2);
    const SharedCosts along(costs(9));
    const SharedCosts beside(costs(6));
    Problem problem;
    std::vector<int> classes;
    for (int i = 0; i < kLinks; ++i) {
      problem.nodes.push_back({.costs = node, .usages = {0, 0, 0}});
      problem.nodes.push_back({.costs = side, .usages = {0, 0}});
      problem.edges.push_back({2 * i, (2 * i + 2) % (2 * kLinks), along});
      problem.edges.push_back({2 * i, 2 * i + 1, beside});
      classes.insert(classes.end(), {0, 1});
    }
    double best = kForbidden;
    for (int a = 0; a < 3; ++a) {
      for (int b = 0; b < 2; ++b) best = std::min(best, evaluate(problem, {a, b, a, b, a, b}).cost);
    }
    const FoldedProblem folded = fold(problem, classes);
    const auto solution = solve(folded.problem);
    EXPECT_NEAR(solution.cost, best, 1e-12);
    EXPECT_NEAR(evaluate(problem, folded.unfold(solution.choices)).cost, best, 1e-12);
  }
  const Problem uneven{.nodes = {{.costs = {1, 2}, .usages = {0, 0}}, {.costs = {1}, .usages = {0}}}};
  EXPECT_THROW(fold(uneven, std::vector<int>{0, 0}), InvalidArgument);
}

TEST(Elimination, IsExactOnSeriesParallelGraphsAndNeverBelowTheBest) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Problem problem = random_problem(seed);
    problem.usage_limit = kNoLimit;
    const double best = brute_force(problem);
    const auto solution = solve_by_elimination(problem);
    if (best == kForbidden) {
      EXPECT_TRUE(solution.choices.empty());
      continue;
    }
    if (solution.status == Status::kOptimal) {
      EXPECT_NEAR(solution.cost, best, 1e-9) << seed;
      EXPECT_NEAR(solution.bound, best, 1e-9) << seed;
    } else if (!solution.choices.empty()) {
      EXPECT_GE(solution.cost, best - 1e-9) << seed;
    }
  }
}

TEST(Core, WithoutTimeIsLargerAndOfTheSameCost) {
  const Problem problem = testing::contest_problem(5000, 1);
  const TickingClock clock(1'000'000'000);
  const Core hurried(problem, Deadline(clock, 1));
  EXPECT_LT(clock.num_questions(), 100);
  EXPECT_FALSE(hurried.is_infeasible());
  EXPECT_GT(hurried.problem().nodes.size(), Core(problem).problem().nodes.size());
  const Solution found = solve(hurried.problem(), {.rounds = 1});
  ASSERT_FALSE(found.choices.empty());
  const double cost = evaluate(problem, hurried.original(found.choices)).cost;
  EXPECT_NEAR(cost, found.cost, 1e-9 * std::abs(found.cost));
}

TEST(FreeNodes, AreTakenOutWithoutLoss) {
  size_t taken = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ReducedProblem reduced = reduce(random_problem(seed));
    if (reduced.infeasible) continue;
    const FreeNodes free = take_out_free_nodes(reduced.problem);
    taken += free.taken.size();
    EXPECT_EQ(free.problem.nodes.size() + free.taken.size(), reduced.problem.nodes.size());
    EXPECT_EQ(brute_force(free.problem), brute_force(reduced.problem)) << seed;
    const std::vector<int> first(free.problem.nodes.size(), 0);
    EXPECT_EQ(evaluate(free.problem, first).cost, evaluate(reduced.problem, free.original(first)).cost) << seed;
  }
  EXPECT_GT(taken, 100U);
}

TEST(Solve, EndsWhereNothingCostsLessThanTheCutoff) {
  Problem problem;
  Draws draws(5);
  for (int n = 0; n < 60; ++n) problem.nodes.push_back({.costs = {1, 2, 3}, .usages = {0, 0, 0}});
  for (int u = 0; u < 60; ++u) {
    for (int v = u + 1; v < 60; ++v) {
      Edge edge{u, v, {}};
      for (int pair = 0; pair < 9; ++pair) edge.costs.own().push_back(static_cast<double>(draws.below(50)));
      problem.edges.push_back(std::move(edge));
    }
  }
  EXPECT_EQ(solve(problem, {.rounds = 4}).rounds, 4);
  EXPECT_EQ(solve(problem, {.rounds = 4, .cutoff = 0}).rounds, 1);
}

TEST(Bound, IsNeverAboveTheLeastCost) {
  int met = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ReducedProblem reduced = reduce(random_problem(seed));
    if (reduced.infeasible) continue;
    const double least = brute_force(reduced.problem);
    const Instance instance(reduced.problem);
    // A solution that costs more is known, so that choices are left out and groups made on the way to the best.
    const double known = least + static_cast<double>(seed % 20) + 0.5;
    Bound bound(instance);
    for (int round = 0; round < 40; ++round) {
      bound.raise(known, 10'000);
      ASSERT_LE(bound.value(), least + 1e-9 * (1 + std::abs(least))) << seed;
    }
    if (least == kForbidden || bound.value() > least - 1e-6) ++met;
  }
  EXPECT_GT(met, 150);
}

TEST(Bound, LeavesOutNoBetterSolution) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ReducedProblem reduced = reduce(random_problem(seed));
    const double least = reduced.infeasible ? kForbidden : brute_force(reduced.problem);
    if (least == kForbidden) continue;
    const Instance instance(reduced.problem);
    Bound bound(instance);
    for (int round = 0; round < 20; ++round) bound.raise(least + 3, 10'000);
    const auto exact = search_exactly(instance, bound.relaxation(), bound.dual(), kForbidden, 1'000'000);
    EXPECT_TRUE(exact.complete) << seed;
    EXPECT_EQ(exact.cost, least) << seed;
    EXPECT_EQ(evaluate(reduced.problem, exact.choices).cost, least) << seed;
  }
}

TEST(Bound, FindsThePriceOfTheLimit) {
  // Half of the nodes have to pay 5 for not using 10 each.
  Problem problem{.name = "", .nodes = {}, .edges = {}, .usage_limit = 50};
  for (int n = 0; n < 10; ++n) problem.nodes.push_back({.begin = 0, .end = 1, .costs = {0, 5}, .usages = {10, 0}});
  const Instance instance(problem);
  Bound bound(instance);
  for (int round = 0; round < 100; ++round) bound.raise(40, 1000);
  EXPECT_GT(bound.value(), 24.9);
  EXPECT_LE(bound.value(), 25 + 1e-9);
}

TEST(CostGraph, EqualEdgesShareTheirCosts) {
  CostGraph graph;
  for (int n = 0; n < 3; ++n) graph.add_node(std::vector<double>{0, 0});
  const std::vector<double> costs{1, 2, 3, 4};
  graph.add_edge(0, 1, costs);
  graph.add_edge(1, 2, costs);
  graph.add_edge(0, 2, std::vector<double>{1, 2, 3, 5});
  graph.finish();
  EXPECT_EQ(graph.by_u.size(), 8U);
  EXPECT_EQ(graph.num_pairs, 12U);
  EXPECT_EQ(graph.row(1, 1)[0], 3);
  EXPECT_EQ(graph.column(1, 1)[0], 2);
  EXPECT_EQ(graph.column(2, 1)[1], 5);
}

TEST(Dual, MovedCostsAddUpToTheTrueOnes) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const ReducedProblem reduced = reduce(random_problem(seed));
    if (reduced.infeasible) continue;
    const Instance instance(reduced.problem);
    Dual dual(instance);
    for (int i = 0; i < 3; ++i) dual.pass();
    const std::vector<int> choices(reduced.problem.nodes.size(), 0);
    double moved = dual.constant();
    for (int n = 0; n < instance.num_nodes(); ++n) moved += dual.node_cost(n, 0);
    for (int e = 0; e < instance.num_edges(); ++e) moved += dual.edge_cost(e, 0, 0);
    const double cost = evaluate(reduced.problem, choices).cost;
    if (cost == kForbidden) {
      EXPECT_EQ(moved, kForbidden);
    } else {
      EXPECT_NEAR(moved, cost, 1e-9 * (1 + std::abs(cost)));
    }
  }
}

TEST(TimePoints, AreThoseAtWhichMostLive) {
  Problem problem{.name = "", .nodes = {}, .edges = {}, .usage_limit = 5};
  const auto add = [&](int64_t begin, int64_t end, int64_t usage) {
    problem.nodes.push_back({.begin = begin, .end = end, .costs = {0}, .usages = {usage}});
  };
  add(0, 10, 3);
  add(2, 4, 3);    // 6 at 2 and 3
  add(5, 7, 2);    // 5 at 5: within the limit
  add(8, 9, 3);    // 6 at 8
  add(8, 8, 9);    // never lives
  add(20, 30, 0);  // uses nothing
  const TimePoints points = time_points(problem);
  EXPECT_EQ(points.count, 3 - 1 + 1);  // 2, 5 (nearly at the limit) and 8
  EXPECT_EQ(points.ranges[0], std::pair(0, 3));
  EXPECT_EQ(points.ranges[1], std::pair(0, 1));
  EXPECT_EQ(points.ranges[3], std::pair(2, 3));
  EXPECT_EQ(points.ranges[4].first, points.ranges[4].second);
}

TEST(UsageTree, IsAnArrayThatKnowsItsLargest) {
  for (const int count : {1, 2, 7, 64, 100}) {
    UsageTree tree(count);
    std::vector<int64_t> plain(static_cast<size_t>(count), 0);
    Draws draws(static_cast<uint64_t>(count));
    for (int i = 0; i < 200; ++i) {
      const auto first = static_cast<int>(draws.below(count));
      const auto last = first + static_cast<int>(draws.below(count - first + 1));
      const int64_t amount = draws.below(41) - 20;
      tree.add(first, last, amount);
      for (int p = first; p < last; ++p) plain[static_cast<size_t>(p)] += amount;
      const auto largest = std::max_element(plain.begin(), plain.end());
      ASSERT_EQ(tree.largest(), *largest);
      ASSERT_EQ(tree.where(), largest - plain.begin());
      ASSERT_EQ(tree.at(first), plain[static_cast<size_t>(first)]);
    }
  }
}

TEST(Problem, IsChecked) {
  const auto message = [](Problem problem) { return [problem] { validate(problem); }; };
  const ProblemNode node{.begin = 0, .end = 1, .costs = {1, 2}, .usages = {0, 0}};
  EXPECT_THAT(message({.name = "", .nodes = {ProblemNode{}}, .edges = {}}),
              ThrowsMessage<InvalidArgument>("node 0: no choice"));
  EXPECT_THAT(message({.name = "", .nodes = {node}, .edges = {{0, 1, {1, 2, 3, 4}}}}),
              ThrowsMessage<InvalidArgument>("edge 0: there is no node 1, the nodes are 0 to 0"));
  EXPECT_THAT(message({.name = "", .nodes = {node, node}, .edges = {{0, 1, {1, 2}}}}),
              ThrowsMessage<InvalidArgument>("edge 0 between nodes 0 and 1: 2 costs, expected 2 x 2"));
  EXPECT_THAT(message({.name = "", .nodes = {{0, 1, {std::nan("")}, {0}, "conv"}}, .edges = {}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("node 0 \"conv\": cost 0 is nan")));
  EXPECT_THAT(message({.name = "", .nodes = {{0, 1, {1}, {-4}}}, .edges = {}}),
              ThrowsMessage<InvalidArgument>("node 0: usage 0 is -4, expected >= 0"));
  constexpr int64_t kHuge = int64_t{1} << 60;
  EXPECT_THAT(message({.name = "", .nodes = {{0, 1, {1, 1}, {kHuge, 0}}, {0, 1, {1}, {kHuge}}, {2, 3, {1}, {1}}}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("node 2: with it the largest usages of the nodes add up to more "
                                                       "than 2305843009213693952; count in larger units")));
}

constexpr const char* kExample = R"({"problem": {"name": "example",
  "nodes": {"intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
            "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
            "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]},
  "edges": {"nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
            "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]},
  "usage_limit": 50}})";

TEST(ProblemJson, IsReadAndSolved) {
  const Problem problem = parse_problem(kExample, "example.json");
  EXPECT_EQ(problem.name, "example");
  const Solution solution = solve(problem);
  EXPECT_EQ(solution.status, Status::kOptimal);
  EXPECT_EQ(solution.cost, brute_force(problem));
  EXPECT_THAT(solution.choices, ElementsAre(0, 0, 2, 1, 0));
}

TEST(ProblemJson, ListsMayBeEmpty) {
  const Problem problem =
      parse_problem(R"({"problem": {"nodes": {"intervals": [[0, 0]], "costs": [[7]], "usages": [[1]]},
    "edges": {"nodes": [ ], "costs": []}, "usage_limit": 5, "tags": ["a", 1, []]}})",
                    "p.json");
  EXPECT_EQ(problem.nodes.size(), 1U);
  EXPECT_EQ(problem.edges.size(), 0U);
  EXPECT_EQ(solve(problem).cost, 7);
}

TEST(ProblemJson, EqualListsAreOneList) {
  std::string text = kExample;
  const std::string costs = "[100, 200, 300, 400, 500, 600, 700, 800, 900]";
  text.replace(text.find("[15]"), 4, "[15, 15, 1500000000000000000]");
  text.replace(text.find("[10]"), 4, "[10 ,\t10, 10]");
  text.replace(text.find("[30, 40]"), 8, "[100, 200, 300, 400, 500, 600.5]");
  text.replace(text.find("[50, 10, 40]"), 12, costs);
  text.replace(text.find("[[0, 1], [0, 2]"), 1, "[[0, 2], ");
  text.replace(text.find("[[100, 200"), 1, "[" + costs + ", ");
  const Problem problem = parse_problem(text, "example.json");
  EXPECT_EQ(problem.nodes[0].costs[2], kForbidden);
  EXPECT_THAT(problem.nodes[0].usages, ElementsAre(10, 10, 10));
  EXPECT_EQ(problem.edges[1].costs[5], 600.5);
  EXPECT_EQ(problem.edges[0].costs[8], 900);
  EXPECT_EQ(problem.edges[0].costs.identity(), problem.edges[2].costs.identity());
  EXPECT_NE(problem.edges[0].costs.identity(), problem.edges[1].costs.identity());
}

TEST(ProblemJson, FaultsAreNamed) {
  const auto reading = [](const std::string& from, const std::string& to) {
    std::string text = kExample;
    text.replace(text.find(from), from.size(), to);
    return [text] { parse_problem(text, "p.json"); };
  };
  EXPECT_THAT(reading("\"costs\": [[15]", "\"kosts\": [[15]"),
              ThrowsMessage<InvalidArgument>("p.json: problem.nodes has no member \"costs\""));
  EXPECT_THAT(reading("[30, 70]", "[30]"),
              ThrowsMessage<InvalidArgument>("p.json: problem.nodes.intervals[0] is no array of two"));
  EXPECT_THAT(reading("[0, 1]", "[0, 9]"),
              ThrowsMessage<InvalidArgument>("p.json: problem.edges.nodes[0] names node 9, the nodes are 0 to 4"));
  EXPECT_THAT(reading("[30, 40]", "[30]"),
              ThrowsMessage<InvalidArgument>("p.json: edge 0 between nodes 0 and 1: 1 costs, expected 1 x 2"));
  EXPECT_THAT(reading("[15]", "[\"15\"]"),
              ThrowsMessage<InvalidArgument>("p.json: problem.nodes.costs[0][0] is string, expected a number"));
  EXPECT_THAT(reading("[60, 20, 30]", "[60, , 30]"),
              ThrowsMessage<InvalidArgument>(
                  ::testing::AllOf(HasSubstr("p.json: not JSON: line "), HasSubstr("\",\" cannot stand there"))));
  EXPECT_THAT(reading("[10, 10]", "[10, 1.5]"),
              ThrowsMessage<InvalidArgument>("p.json: problem.nodes.usages[3] is not an integer of 64 bits"));
  EXPECT_THAT(reading("[30, 70]", "[30, 99999999999999999999]"),
              ThrowsMessage<InvalidArgument>("p.json: problem.nodes.intervals[0] is not an integer of 64 bits"));
  EXPECT_THAT([] { parse_problem("{", "p.json"); },
              ThrowsMessage<InvalidArgument>("p.json: not JSON: line 1, column 2: the text ends before it is whole"));
  EXPECT_THAT([] { parse_problem(std::string(50, '[') + std::string(50, ']'), "p.json"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("p.json: nested deeper than 8 levels, as no problem is: line 1, column 9")));
}

TEST(ProblemJson, DamagedTextIsRefusedByNameOrReadAsASoundProblem) {
  const std::string text = kExample;
  int num_read = 0;
  int num_refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Draws draws(seed);
    std::string damaged = text;
    for (int64_t i = draws.below(4); i >= 0; --i) {
      damaged[static_cast<size_t>(draws.below(static_cast<int64_t>(text.size())))] =
          static_cast<char>("0123456789[]{},:-\"e."[draws.below(20)]);
    }
    std::optional<Problem> read;
    try {
      read = parse_problem(damaged, "damaged");
      ++num_read;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("damaged: ")) << damaged;
      ++num_refused;
    }
    if (read) {
      EXPECT_NO_THROW(validate(*read)) << damaged;
    }
  }
  EXPECT_GT(num_read, 100);
  EXPECT_GT(num_refused, 1000);
}

}  // namespace
}  // namespace tessera::solver
