// How a search deals the ranks to the stages of a pipeline: against all ways that there are, each planned by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/pipelines/choose_stages.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/trace.h"
#include "tessera/testing/ticking_clock.h"

namespace tessera::compiler {
namespace {

constexpr int64_t kWidth = 16;

// It cannot be cut: one layer, so many times.
struct Repeated : nn::Cell {
  explicit Repeated(int count) : times(count) {}
  int times;
  nn::Dense& layer = child<nn::Dense>("layer", kWidth, kWidth);
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    for (int i = 0; i < times; ++i) x = ops::tanh(layer(x));
    return x;
  }
};

// Cells one after the other, which take so long beside each other.
struct InTurn : nn::Cell {
  explicit InTurn(const std::vector<int>& times) {
    for (size_t i = 0; i < times.size(); ++i) cells.push_back(&child<Repeated>(fmt::format("cell{}", i), times[i]));
  }
  std::vector<Repeated*> cells;
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    for (Repeated* cell : cells) x = (*cell)(x);
    return x;
  }
};

// Nothing but arithmetic takes long.
MachineProfile computing() {
  const Link link{.bytes_per_second = 1e12, .latency_seconds = 1e-9};
  return {.name = "computing",
          .flops_per_second = {{DType::kF32, 1e9}},
          .memory_bytes_per_second = 1e13,
          .kernel_overhead_seconds = 1e-9,
          .ranks_per_host = 64,
          .intra_host = link,
          .inter_host = link};
}

// A network's planner, with all that it looks at.
struct Planning {
  Planning(const std::vector<int>& times, int num_ranks, int64_t batch_rows, StageSearchOptions search = {},
           MachineProfile machines = computing())
      : network(times), rows(batch_rows), profile(std::move(machines)), options(std::move(search)) {
    options.searches_inside = false;
    planner = std::make_unique<StagePlanner>(
        whole, rows, [this](int micro_batches) { return graphs(micro_batches); }, num_ranks, profile, options);
  }

  StepGraphs graphs(int micro_batches) {
    ++num_traced;
    num_late += options.deadline.is_over() ? 1 : 0;
    const Shape shape = {rows / micro_batches, kWidth};
    const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, shape}}, {"y", {DType::kF32, shape}}};
    StepGraphs graphs;
    graphs.micro = session::trace_train_step(network, &loss, optimizer, inputs, {.training = true},
                                             {.sens = 1.0 / micro_batches, .part = session::StepPart::kAccumulate});
    graphs.update = session::trace_update(network, &loss, optimizer, {.training = true});
    const auto trainable = network.trainable_parameters();
    const auto accumulators = nn::gradient_accumulators(trainable);
    for (size_t i = 0; i < trainable.size(); ++i) {
      graphs.stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    }
    return graphs;
  }

  InTurn network;
  nn::MSELoss loss;
  nn::Momentum optimizer{{.learning_rate = 0.1, .momentum = 0.9}};
  int64_t rows;
  ir::Graph whole;
  MachineProfile profile;
  StageSearchOptions options;
  int num_traced = 0;
  int num_late = 0;  // of these
  std::unique_ptr<StagePlanner> planner;
};

const PlannedStages& fastest_of(const StagePlanner::Search& search) {
  return *search.candidates.at(search.fastest.value()).planned;
}

double fastest_of_equal(const StagePlanner::Search& search) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const auto& candidate : search.candidates) {
    if (candidate.planned && candidate.ranks.are_equal()) {
      fastest = std::min(fastest, candidate.planned->step_seconds());
    }
  }
  return fastest;
}

// All ways to deal so many ranks to so many stages.
std::vector<std::vector<int>> all_ways(int ranks, int stages) {
  if (stages == 1) return {{ranks}};
  std::vector<std::vector<int>> ways;
  for (int first = 1; first <= ranks - stages + 1; ++first) {
    for (auto way : all_ways(ranks - first, stages - 1)) {
      way.insert(way.begin(), first);
      ways.push_back(std::move(way));
    }
  }
  return ways;
}

TEST(StageRanks, AreSearchedForOfANumberOfStagesThatIsGiven) {
  for (const int num_ranks : {3, 4}) {
    Planning planning({12, 4, 4}, num_ranks, 48, {.num_stages = 2, .micro_batches = 4, .schedule = "1f1b"});
    const auto search = planning.planner->search();
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& way : all_ways(num_ranks, 2)) {
      fastest = std::min(fastest, planning.planner->plan(mesh::StageRanks(way), 4).step_seconds());
    }
    EXPECT_EQ(fastest_of(search).step_seconds(), fastest) << num_ranks;
    for (const auto& candidate : search.candidates) EXPECT_EQ(candidate.ranks.num_stages(), 2);
  }
}

// Wherever time is up: nothing is begun any more.
TEST(StagePlanner, EndsWhenTimeIsUpWhereverItIs) {
  constexpr int64_t kMillisecond = 1'000'000;
  const std::vector<int> times = {4, 1, 1, 2};
  TickingClock endless(kMillisecond);
  Planning all(times, 6, 24, {.deadline = Deadline(endless, 1e6)});
  const auto everything = all.planner->search();
  ASSERT_TRUE(everything.fastest.has_value());
  EXPECT_THAT(everything.left_out, testing::IsEmpty());
  for (const double share : {0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95}) {
    TickingClock clock(kMillisecond);
    Planning planning(times, 6, 24, {.deadline = Deadline(clock, share * endless.seconds())});
    const auto search = planning.planner->search();
    EXPECT_LE(planning.num_late, share == 0 ? 0 : 1) << share;  // one that was begun in time
    EXPECT_THAT(search.left_out, testing::Not(testing::IsEmpty())) << share;
    if (share == 0) {
      EXPECT_EQ(planning.num_traced, 0);
    }
    if (search.fastest) {
      EXPECT_GE(search.fastest_seconds(), everything.fastest_seconds()) << share;
      EXPECT_NO_THROW(planning.planner->deal_bound(fastest_of(search))) << share;
    }
  }
}

// The search within a stage plans and simulates data parallel, however little time it has.
TEST(StagePlanner, SearchesWithinNoStageWhenTimeIsUp) {
  Planning traced({1, 1}, 4, 8);
  const Shape shape = {8, kWidth};
  const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, shape}}, {"y", {DType::kF32, shape}}};
  const auto whole =
      session::trace_train_step(traced.network, &traced.loss, traced.optimizer, inputs, {.training = true});
  TickingClock clock(1'000'000);
  int num_simulated = 0;
  StageSearchOptions options{.deadline = Deadline(clock, 1e-9)};
  options.search.on_simulation = [&](const SimulationProgress&) { ++num_simulated; };
  StagePlanner late(
      whole, 8, [&](int micro_batches) { return traced.graphs(micro_batches); }, 4, traced.profile, options);
  const auto search = late.search();
  EXPECT_EQ(num_simulated, 0);
  EXPECT_EQ(traced.num_traced, 0);
  EXPECT_FALSE(search.fastest.has_value());
  EXPECT_THAT(search.left_out, testing::Not(testing::IsEmpty()));
}

TEST(StageRanks, AHalfThatTakesThreeTimesAsLongHasThreeOfFourRanks) {
  for (const char* schedule : {"1f1b", "gpipe", "auto"}) {
    for (const bool is_first : {true, false}) {
      SCOPED_TRACE(schedule);
      Planning planning(is_first ? std::vector{12, 4} : std::vector{4, 12}, 4, 48, {.schedule = schedule});
      const auto search = planning.planner->search();
      const auto& found = fastest_of(search);
      EXPECT_EQ(found.ranks, mesh::StageRanks(is_first ? std::vector{3, 1} : std::vector{1, 3}));
      // Two ranks of each stage leave one of three quarters of the work to half of the ranks.
      EXPECT_LT(1.2 * found.step_seconds(), fastest_of_equal(search));
      const auto bound = planning.planner->deal_bound(found);
      EXPECT_EQ(bound->shortest.ranks, found.ranks);
      EXPECT_EQ(bound->gap(), 0);
    }
  }
}

TEST(StageRanks, HalvesThatTakeEquallyLongHaveEquallyManyRanks) {
  Planning planning({6, 6}, 4, 48, {.schedule = "1f1b"});
  const auto search = planning.planner->search();
  EXPECT_EQ(fastest_of(search).ranks, mesh::StageRanks({2, 2}));
  EXPECT_GT(search.num_unequal, 0);
}

TEST(StageRanks, ThreeRanksAreATwoStagePipelineToo) {
  Planning planning({8, 4}, 3, 24, {.micro_batches = 4, .schedule = "1f1b"});
  const auto search = planning.planner->search();
  EXPECT_EQ(fastest_of(search).ranks, mesh::StageRanks({2, 1}));
}

TEST(StageRanks, TwoRanksCanBeDealtInOneWay) {
  Planning planning({8, 4}, 2, 24, {.schedule = "1f1b"});
  const auto search = planning.planner->search();
  EXPECT_EQ(search.num_unequal, 0);
  EXPECT_EQ(fastest_of(search).ranks, mesh::StageRanks({1, 1}));
}

TEST(StageRanks, WhatIsFoundIsWhatItsRanksSayByHand) {
  Planning planning({12, 4}, 4, 48, {.schedule = "1f1b"});
  const auto search = planning.planner->search();
  const auto& found = fastest_of(search);
  Planning again({12, 4}, 4, 48, {.schedule = "1f1b"});
  const auto by_hand = again.planner->plan(found.ranks, found.micro_batches);
  EXPECT_EQ(by_hand.step_seconds(), found.step_seconds());
  EXPECT_EQ(by_hand.cuts.ends, found.cuts.ends);
  EXPECT_EQ(by_hand.cells, found.cells);
}

TEST(StageRanks, AreTheSameWhoeverSearches) {
  for (const auto& times : {std::vector{9, 2, 4}, std::vector{3, 3, 3, 7}}) {
    Planning one(times, 5, 40, {.schedule = "auto"});
    Planning other(times, 5, 40, {.schedule = "auto"});
    const auto a = one.planner->search();
    other.planner->plan(mesh::StageRanks({2, 3}), 4);  // what it remembers changes nothing
    const auto b = other.planner->search();
    ASSERT_EQ(a.candidates.size(), b.candidates.size());
    EXPECT_EQ(a.fastest, b.fastest);
    for (size_t i = 0; i < a.candidates.size(); ++i) {
      EXPECT_EQ(a.candidates[i].ranks, b.candidates[i].ranks);
      EXPECT_EQ(a.candidates[i].micro_batches, b.candidates[i].micro_batches);
      EXPECT_EQ(a.candidates[i].estimate, b.candidates[i].estimate);
    }
    EXPECT_EQ(fastest_of(a).step_seconds(), fastest_of(b).step_seconds());
  }
}

TEST(StageRanks, KeepToTheLimitOfMemory) {
  Planning unlimited({14, 2}, 4, 48, {.micro_batches = 4, .schedule = "1f1b"});
  const auto three = unlimited.planner->plan(mesh::StageRanks({3, 1}), 4);
  const auto two = unlimited.planner->plan(mesh::StageRanks({2, 2}), 4);
  ASSERT_LT(three.simulated.memory_bytes(), two.simulated.memory_bytes());
  const auto limit = (three.simulated.memory_bytes() + two.simulated.memory_bytes()) / 2;
  Planning planning({14, 2}, 4, 48, {.micro_batches = 4, .schedule = "1f1b", .memory_limit_bytes = limit});
  const auto search = planning.planner->search();
  EXPECT_EQ(fastest_of(search).ranks, mesh::StageRanks({3, 1}));
  EXPECT_LE(fastest_of(search).simulated.memory_bytes(), limit);
}

// Whatever way fits is found where the fastest of all does not.
TEST(StageRanks, AWayThatIsSlowerIsTakenWhereTheFastestDoesNotFit) {
  int num_slower = 0;
  for (const auto& times : {std::vector{10, 6}, {14, 2}, {3, 9, 4}, {5, 5, 5, 1}}) {
    SCOPED_TRACE(fmt::format("cells that take {}", fmt::join(times, ", ")));
    Planning unlimited(times, 4, 48, {.schedule = "1f1b"});
    const auto all = unlimited.planner->search();
    const auto fastest = fastest_of(all);
    const auto limit = fastest.simulated.memory_bytes() - 1;
    bool any_fits = false;
    for (const auto& candidate : all.candidates) {
      if (!candidate.fault.empty()) continue;
      const auto planned = unlimited.planner->plan(candidate.ranks, candidate.micro_batches);
      any_fits = any_fits || planned.simulated.memory_bytes() <= limit;
    }
    Planning limited(times, 4, 48, {.schedule = "1f1b", .memory_limit_bytes = limit});
    const auto search = limited.planner->search();
    if (!any_fits) continue;
    ASSERT_TRUE(search.fastest);
    EXPECT_LE(fastest_of(search).simulated.memory_bytes(), limit);
    EXPECT_GE(fastest_of(search).step_seconds(), fastest.step_seconds());
    ++num_slower;
  }
  EXPECT_GT(num_slower, 0);
}

// All ways to cut so many pieces into so many chunks.
std::vector<std::vector<int>> all_cuts(int pieces, int chunks) {
  if (chunks == 1) return {{pieces}};
  std::vector<std::vector<int>> cuts;
  for (int last = chunks - 1; last < pieces; ++last) {
    for (auto cut : all_cuts(last, chunks - 1)) {
      cut.push_back(pieces);
      cuts.push_back(std::move(cut));
    }
  }
  return cuts;
}

// Each cut is simulated by itself: for any limit a plan is found where one of them fits, and refused where none does.
TEST(StageRanks, APlanIsRefusedOnlyWhereNoCutFits) {
  const std::vector<std::pair<std::string, std::vector<int>>> cases = {{"1f1b", {5, 3, 4, 4}},
                                                                       {"1f1b", {1, 1, 9, 2, 1}},
                                                                       {"gpipe", {2, 6, 3, 3}},
                                                                       {"interleaved_1f1b", {6, 2, 1, 4, 3}},
                                                                       {"zb_v", {6, 2, 1, 4, 3}}};
  for (const auto& [schedule, times] : cases) {
    SCOPED_TRACE(fmt::format("{}, cells that take {}", schedule, fmt::join(times, ", ")));
    const StageSearchOptions named{.schedule = schedule};
    Planning unlimited(times, 2, 64, named);
    const auto any = unlimited.planner->plan(2, 4);
    std::vector<int64_t> needed;
    for (const auto& ends : all_cuts(static_cast<int>(times.size()), any.num_chunks())) {
      const auto planned = unlimited.planner->plan_with(any, {.ends = ends});
      ASSERT_TRUE(planned);
      needed.push_back(planned->simulated.memory_bytes());
    }
    std::sort(needed.begin(), needed.end());
    for (const int64_t limit : needed) {
      auto options = named;
      options.memory_limit_bytes = limit;
      Planning planning(times, 2, 64, options);
      EXPECT_LE(planning.planner->plan(2, 4).simulated.memory_bytes(), limit) << limit << " bytes do";
    }
    auto options = named;
    options.memory_limit_bytes = needed.front() * 9 / 10;
    Planning too_large(times, 2, 64, options);
    try {
      const auto planned = too_large.planner->plan(2, 4);
      // A schedule may keep less than it would, where it has to.
      EXPECT_LE(planned.simulated.memory_bytes(), options.memory_limit_bytes);
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      const auto begin = text.find("needs about ") + 12;
      const auto said = parse_bytes(text.substr(begin, text.find(';', begin) - begin), "the need");
      EXPECT_GE(said, needed.front()) << text;
      EXPECT_LE(said, needed.front() + needed.front() / 10 + 1) << text;  // it has one digit behind the point
    }
  }
}

TEST(StageRanks, WhereNothingFitsNothingIsFound) {
  Planning planning({12, 4}, 4, 48, {.schedule = "1f1b", .memory_limit_bytes = 1000});
  const auto search = planning.planner->search();
  EXPECT_FALSE(search.fastest);
  for (const auto& candidate : search.candidates) EXPECT_FALSE(candidate.fault.empty());
  EXPECT_NE(search.what_needs_least().find(" stages of "), std::string::npos) << search.what_needs_least();
}

// Every way to deal the ranks to every number of stages, with every number of micro-batches, is planned and simulated
// by itself: what the search finds is not slower than any of equal stages, and close to the best of all.
TEST(StageRanks, AreNeverWorseThanEqualOnesAndCloseToTheBestOfAll) {
  int num_unequal = 0;
  double worst = 1;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    uint64_t next = 0;
    const auto draw = [&](int64_t below) { return random_below({.seed = seed}, next++, below); };
    std::vector<int> times(static_cast<size_t>(2 + draw(3)));
    for (int& each : times) each = static_cast<int>(1 + draw(9));
    const int ranks = static_cast<int>(3 + draw(3));
    auto profile = computing();
    if (seed % 2 == 1) profile.kernel_overhead_seconds = 2e-6;
    if (seed % 3 == 1) profile.intra_host.bytes_per_second = 1e9;
    SCOPED_TRACE(fmt::format("seed {}: {} ranks, cells that take {}", seed, ranks, fmt::join(times, ", ")));
    Planning planning(times, ranks, 120, {.schedule = "1f1b"}, profile);
    const auto search = planning.planner->search();
    const auto& found = fastest_of(search);
    EXPECT_LE(found.step_seconds(), fastest_of_equal(search));
    num_unequal += found.ranks.are_equal() ? 0 : 1;
    double best = std::numeric_limits<double>::infinity();
    for (int stages = 2; stages <= ranks; ++stages) {
      for (const int count : planning.planner->micro_batches_for(stages)) {
        for (const auto& way : all_ways(ranks, stages)) {
          try {
            const auto planned = planning.planner->plan(mesh::StageRanks(way), count);
            best = std::min(best, planned.step_seconds());
          } catch (const InvalidArgument&) {
            // Too few cells for so many stages.
          }
        }
      }
    }
    EXPECT_GE(found.step_seconds(), best);
    EXPECT_LE(found.step_seconds(), 1.03 * best);
    worst = std::max(worst, found.step_seconds() / best);
  }
  EXPECT_GE(num_unequal, 4);
  std::cout << fmt::format("{} of 12 have unequal stages; at worst {:.4f} times the best\n", num_unequal, worst);
}

}  // namespace
}  // namespace tessera::compiler
