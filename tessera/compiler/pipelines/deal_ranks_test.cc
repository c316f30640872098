#include "tessera/compiler/pipelines/deal_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::compiler {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Pieces that take so long on one rank and r times less on r.
DealProblem scaled(const std::vector<double>& seconds, int num_ranks, int stages, int segments = 1) {
  DealProblem problem{.num_ranks = num_ranks};
  for (const int size : sizes_of_stages(num_ranks)) {
    CutProblem& of_size = problem.sizes[size];
    for (size_t i = 0; i < seconds.size(); ++i) {
      const auto name = fmt::format("layer{}", i);
      of_size.pieces.push_back({name, name, seconds[i] / size, 100, 12 / size, true});
    }
    of_size.places.resize(seconds.size() - 1);
  }
  for (int chunk = 0; chunk < stages * segments; ++chunk) problem.stages.push_back(chunk % stages);
  return problem;
}

std::vector<int> best_of(const DealProblem& problem, const CutLimits& limits) {
  const auto dealt = deal_ranks(problem, limits);
  return dealt.empty() ? std::vector<int>{} : dealt.front().ranks.counts();
}

TEST(DealRanks, AStretchThatTakesThreeTimesAsLongHasThreeTimesAsManyRanks) {
  const CutLimits limits{.stages = 2, .micro_batches = 8};
  EXPECT_EQ(best_of(scaled({3, 1}, 4, 2), limits), (std::vector{3, 1}));
  EXPECT_EQ(best_of(scaled({1, 3}, 4, 2), limits), (std::vector{1, 3}));
  EXPECT_EQ(best_of(scaled({1, 1}, 4, 2), limits), (std::vector{2, 2}));
  EXPECT_EQ(shortest_deal(scaled({3, 1}, 4, 2), limits)->ranks, mesh::StageRanks({3, 1}));
}

TEST(DealRanks, WhereCutsBalanceTheStagesTheyHaveEquallyManyRanks) {
  EXPECT_EQ(best_of(scaled({1, 1, 1, 1, 1, 1}, 4, 2), {.stages = 2, .micro_batches = 4}), (std::vector{2, 2}));
  EXPECT_EQ(best_of(scaled({1, 1, 1, 1, 1, 1}, 6, 3), {.stages = 3, .micro_batches = 4}), (std::vector{2, 2, 2}));
}

TEST(DealRanks, AMessageThatTakesLongerThanAStageCounts) {
  auto problem = scaled({3, 1}, 4, 2);
  // To and from one rank everything passes by its own link.
  problem.sizes.at(1).places[0].forward_seconds = 5;
  EXPECT_EQ(best_of(problem, {.stages = 2, .micro_batches = 8}), (std::vector{2, 2}));
  EXPECT_EQ(shortest_deal(problem, {.stages = 2, .micro_batches = 8})->ranks, mesh::StageRanks({2, 2}));
}

TEST(DealRanks, AStageWithMoreRanksNeedsLessMemoryOnEach) {
  auto problem = scaled({2, 2}, 4, 2);
  for (auto& [size, of_size] : problem.sizes) of_size.pieces[0].persistent_bytes = 600 / size;
  CutLimits limits{.stages = 2, .micro_batches = 4};
  EXPECT_EQ(best_of(problem, limits), (std::vector{2, 2}));
  limits.memory_limit_bytes = 230;  // of the first piece a rank of three has 200 bytes
  EXPECT_EQ(best_of(problem, limits), (std::vector{3, 1}));
  limits.memory_limit_bytes = 100;
  EXPECT_TRUE(deal_ranks(problem, limits).empty());
  EXPECT_FALSE(shortest_deal(problem, limits));
}

TEST(DealRanks, TheChunksOfAStageHaveTheSameRanks) {
  // Chunks 0 and 2 are on stage 0.
  const auto problem = scaled({3, 1, 3, 1}, 4, 2, 2);
  const CutLimits limits{.stages = 2, .segments = 2, .micro_batches = 4};
  EXPECT_EQ(best_of(problem, limits), (std::vector{3, 1}));
  EXPECT_EQ(shortest_deal(problem, limits)->ranks, mesh::StageRanks({3, 1}));
}

TEST(DealRanks, ManyRanksAreDealtByPowersOfTwoAndWhatTheyLeave) {
  EXPECT_EQ(sizes_of_stages(4), (std::vector{1, 2, 3}));
  EXPECT_EQ(sizes_of_stages(8), (std::vector{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sizes_of_stages(12), (std::vector{1, 2, 3, 4, 6, 8, 9, 10, 11}));
  EXPECT_EQ(sizes_of_stages(16), (std::vector{1, 2, 4, 8, 12, 14, 15}));
  EXPECT_EQ(best_of(scaled({12, 2, 2}, 16, 3), {.stages = 3, .micro_batches = 8}), (std::vector{12, 2, 2}));
}

TEST(DealRanks, TheProblemOfAWayHasThePiecesOfItsSizes) {
  const auto problem = scaled({3, 1}, 4, 2);
  const auto cut = cut_problem_for(problem, mesh::StageRanks({3, 1}));
  EXPECT_EQ(cut.of_chunk(0).pieces[0].seconds, 1);
  EXPECT_EQ(cut.of_chunk(1).pieces[1].seconds, 1);
  const auto equal = cut_problem_for(problem, mesh::StageRanks({2, 2}));
  EXPECT_TRUE(equal.kinds.empty());
  EXPECT_EQ(equal.pieces[0].seconds, 1.5);
}

// Goes through all ways to deal, and calls visit(counts).
void each_way(const std::vector<int>& sizes, int stages, int ranks, std::vector<int>& counts,
              const std::function<void(const std::vector<int>&)>& visit) {
  if (stages == 0) {
    if (ranks == 0) visit(counts);
    return;
  }
  for (const int size : sizes) {
    if (size > ranks) continue;
    counts.push_back(size);
    each_way(sizes, stages - 1, ranks - size, counts, visit);
    counts.pop_back();
  }
}

// What the ways come to that there are, each with the cuts that are best for it: the shortest longest stage, and the
// shortest estimate.
struct BestOfAll {
  double longest = kNever;
  double estimate = kNever;
};

BestOfAll best_of_all(const DealProblem& problem, const CutLimits& limits) {
  BestOfAll best;
  std::vector<int> counts;
  std::vector<int> sizes;
  for (const auto& [size, of_size] : problem.sizes) sizes.push_back(size);
  each_way(sizes, limits.stages, problem.num_ranks, counts, [&](const std::vector<int>& way) {
    const auto cut = cut_problem_for(problem, mesh::StageRanks(way));
    try {
      const auto cuts = choose_cuts(cut, limits);
      best.longest = std::min(best.longest, cuts.longest_seconds);
      best.estimate = std::min(best.estimate, estimated_step(cut, cuts, limits));
    } catch (const InvalidArgument&) {
      // No cut of these keeps to the limit.
    }
  });
  return best;
}

// Whole numbers, so that sums are exact; more ranks take no longer.
DealProblem random_problem(uint64_t seed, int num_ranks, int stages, int segments) {
  uint64_t next = 0;
  const auto draw = [&](int64_t below) { return random_below({.seed = seed}, next++, below); };
  const auto pieces = static_cast<size_t>(stages * segments + draw(6));
  DealProblem problem{.num_ranks = num_ranks};
  const CutProblem* fewer = nullptr;
  std::vector<bool> has_parameters;
  for (size_t i = 0; i < pieces; ++i) has_parameters.push_back(draw(5) > 0);
  for (const int size : sizes_of_stages(num_ranks)) {
    CutProblem& of_size = problem.sizes[size];
    for (size_t i = 0; i < pieces; ++i) {
      const double least = fewer == nullptr ? 200 : fewer->pieces[i].seconds;
      const double seconds =
          fewer == nullptr ? 1 + static_cast<double>(draw(200)) : least - static_cast<double>(draw(9));
      of_size.pieces.push_back({"", "", std::max(1.0, seconds), 20 + draw(100), draw(20), has_parameters[i]});
    }
    for (size_t i = 0; i + 1 < pieces; ++i) {
      of_size.places.push_back({static_cast<double>(draw(60)), static_cast<double>(draw(60)), draw(9), draw(9)});
    }
    fewer = &of_size;
  }
  for (int chunk = 0; chunk < stages * segments; ++chunk) problem.stages.push_back(chunk % stages);
  return problem;
}

TEST(DealRanks, NoWayIsBetterInAThousandRandomProblems) {
  int num_solved = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    uint64_t next = 0;
    const auto draw = [&](int64_t below) { return random_below({.seed = seed, .stream = 1}, next++, below); };
    const int ranks = static_cast<int>(2 + draw(7));
    const int stages = static_cast<int>(2 + draw(std::min(4, ranks - 1)));
    const int segments = draw(4) == 0 ? 2 : 1;
    const CutLimits limits{.stages = stages,
                           .segments = segments,
                           .memory_limit_bytes = draw(2) == 0 ? 0 : segments * (200 + draw(600)),
                           .micro_batches = static_cast<int>(stages + draw(6)),
                           .holds_all = draw(3) == 0,
                           .receive_ahead = static_cast<int>(draw(2))};
    const auto problem = random_problem(seed, ranks, stages, segments);
    const auto best = best_of_all(problem, limits);
    const auto dealt = deal_ranks(problem, limits);
    const auto shortest = shortest_deal(problem, limits);
    SCOPED_TRACE(fmt::format("seed {}: {} ranks, {} stages of {} segments", seed, ranks, stages, segments));
    ASSERT_EQ(dealt.empty(), best.estimate == kNever);
    ASSERT_EQ(shortest.has_value(), best.longest != kNever);
    if (dealt.empty()) continue;
    ++num_solved;
    EXPECT_EQ(dealt.front().estimate, best.estimate);
    EXPECT_EQ(shortest->cuts.longest_seconds, best.longest);
    for (size_t i = 0; i < dealt.size(); ++i) {
      EXPECT_EQ(dealt[i].ranks.num_ranks(), ranks);
      EXPECT_LE(dealt[std::max<size_t>(i, 1) - 1].estimate, dealt[i].estimate);
    }
  }
  EXPECT_GT(num_solved, 500);
}

// So many ways that they are not gone through: then the one with the shortest longest stage is there, and that of equal
// stages.
TEST(DealRanks, OfManyWaysTheShortestIsProven) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const auto& [ranks, stages] : {std::pair{12, 4}, {16, 5}, {10, 5}}) {
      SCOPED_TRACE(fmt::format("seed {}: {} ranks, {} stages", seed, ranks, stages));
      const auto problem = random_problem(seed, ranks, stages, 1);
      const CutLimits limits{.stages = stages, .memory_limit_bytes = seed % 2 == 0 ? 0 : 700, .micro_batches = 8};
      const auto best = best_of_all(problem, limits);
      const auto dealt = deal_ranks(problem, limits);
      ASSERT_EQ(dealt.empty(), best.longest == kNever);
      if (dealt.empty()) continue;
      double longest = kNever;
      bool has_equal = false;
      for (const auto& each : dealt) {
        longest = std::min(longest, each.cuts.longest_seconds);
        has_equal = has_equal || each.ranks.are_equal();
      }
      EXPECT_EQ(longest, best.longest);
      EXPECT_EQ(shortest_deal(problem, limits)->cuts.longest_seconds, best.longest);
      if (limits.memory_limit_bytes == 0) {
        EXPECT_EQ(has_equal, ranks % stages == 0);
      }
    }
  }
}

TEST(DealRanks, TwiceTheTimesTakeTwiceAsLongAndLessMemoryIsNoFaster) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    auto problem = random_problem(seed, 6, 3, 1);
    CutLimits limits{.stages = 3, .micro_batches = 6};
    const auto once = shortest_deal(problem, limits);
    if (!once) continue;
    limits.memory_limit_bytes = 500;
    const auto within = shortest_deal(problem, limits);
    EXPECT_GE(within ? within->cuts.longest_seconds : kNever, once->cuts.longest_seconds) << seed;
    limits.memory_limit_bytes = 0;
    for (auto& [size, of_size] : problem.sizes) {
      for (auto& piece : of_size.pieces) piece.seconds *= 2;
      for (auto& place : of_size.places) {
        place.forward_seconds *= 2;
        place.backward_seconds *= 2;
      }
    }
    const auto twice = shortest_deal(problem, limits);
    EXPECT_EQ(twice->cuts.longest_seconds, 2 * once->cuts.longest_seconds) << seed;
    EXPECT_EQ(twice->ranks, once->ranks) << seed;
  }
}

}  // namespace
}  // namespace tessera::compiler
