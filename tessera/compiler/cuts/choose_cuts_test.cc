#include "tessera/compiler/cuts/choose_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::compiler {
namespace {

CutProblem pieces_of(const std::vector<double>& seconds) {
  CutProblem problem;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const auto name = fmt::format("layer{}", i);
    problem.pieces.push_back({name, name, seconds[i], 100, 10, true});
  }
  problem.places.resize(seconds.size() - 1);
  return problem;
}

std::string refusal(const CutProblem& problem, const CutLimits& limits) {
  try {
    choose_cuts(problem, limits);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ChooseCuts, MakesTheLongestStageShort) {
  const auto cuts = choose_cuts(pieces_of({3, 1, 2, 3}), {.stages = 3});
  EXPECT_EQ(cuts.ends, (std::vector{1, 3, 4}));
  EXPECT_EQ(cuts.longest_seconds, 3);
}

TEST(ChooseCuts, OfEquallyGoodCutsTakesTheOneThatSendsLess) {
  auto problem = pieces_of({1, 1, 1, 1, 2});
  for (auto& place : problem.places) place.forward_seconds = 0.5;
  problem.places[2].forward_seconds = 0.1;
  EXPECT_EQ(choose_cuts(problem, {.stages = 2}).ends, (std::vector{3, 5}));
}

TEST(ChooseCuts, AMessageLongerThanAStageCounts) {
  auto problem = pieces_of({1, 1, 1, 1});
  problem.places[1].backward_seconds = 5;
  const auto cuts = choose_cuts(problem, {.stages = 2});
  EXPECT_EQ(cuts.longest_seconds, 3);
  EXPECT_NE(cuts.ends[0], 2);
}

TEST(ChooseCuts, TheFirstStageHoldsMoreMicroBatchesAndIsShorterWhereMemoryIsShort) {
  auto problem = pieces_of({1, 1, 1, 1, 1, 1});
  for (auto& piece : problem.pieces) {
    piece.persistent_bytes = 10;
    piece.kept_bytes = 50;
  }
  CutLimits limits{.stages = 2, .micro_batches = 4};
  EXPECT_EQ(choose_cuts(problem, limits).ends, (std::vector{3, 6}));
  // Stage 0 holds three micro-batches, stage 1 two: 3 x 10 + 3 x 150 do not fit, 4 x 10 + 2 x 200 do.
  limits.memory_limit_bytes = 450;
  EXPECT_EQ(choose_cuts(problem, limits).ends, (std::vector{2, 6}));
}

TEST(ChooseCuts, EveryStageHasParameters) {
  auto problem = pieces_of({1, 1, 5});
  problem.pieces[2].has_parameters = false;
  EXPECT_EQ(choose_cuts(problem, {.stages = 2}).ends, (std::vector{1, 3}));
  EXPECT_EQ(refusal(problem, {.stages = 3}),
            "3 stages cannot be cut: the network has 2 places where it can be cut, with 2 stretches that have "
            "parameters; use at most 2 stages");
}

TEST(ChooseCuts, WhereNothingFitsTheLeastLimitIsNamed) {
  EXPECT_EQ(refusal(pieces_of({1, 1, 1, 1}), {.stages = 2, .memory_limit_bytes = 100, .micro_batches = 4}),
            "no cut into 2 stages fits into 100 B of memory on a rank: the best needs about 260 B; use more stages or "
            "ranks, more micro-batches of fewer rows, or a higher memory limit");
}

// No chunk has a right to half of its stage's memory.
TEST(ChooseCuts, TheChunksOfAStageShareItsMemoryAsTheyNeedIt) {
  auto problem = pieces_of({1, 1, 1, 1});
  const std::vector<int64_t> bytes = {300, 100, 50, 200};
  for (size_t i = 0; i < bytes.size(); ++i) {
    problem.pieces[i].persistent_bytes = bytes[i];
    problem.pieces[i].kept_bytes = 0;
  }
  CutLimits limits{.stages = 2, .segments = 2, .memory_limit_bytes = 350, .micro_batches = 4};
  EXPECT_EQ(choose_cuts(problem, limits).ends, (std::vector{1, 2, 3, 4})) << "300 + 50 and 100 + 200";
  limits.memory_limit_bytes = 349;
  EXPECT_EQ(refusal(problem, limits),
            "no cut into 2 stages of 2 segments fits into 349 B of memory on a rank: the best needs about 350 B; use "
            "more stages or ranks, more micro-batches of fewer rows, or a higher memory limit");
  limits.stages_of_chunks = {0, 1, 1, 0};  // there and back
  EXPECT_EQ(least_memory_cuts(problem, limits).bytes, (std::vector<int64_t>{500, 150}));
}

TEST(ChooseCuts, WhatASimulationHasShownCounts) {
  const auto problem = pieces_of({1, 1, 1, 1});
  CutLimits limits{.stages = 2, .memory_limit_bytes = 400, .micro_batches = 1};
  const auto even = choose_cuts(problem, limits);
  ASSERT_EQ(even.ends, (std::vector{2, 4}));  // by its pieces a stage takes 220 bytes
  note_needed(problem, even, {500, 230}, limits);
  const auto other = choose_cuts(problem, limits);
  EXPECT_EQ(other.ends, (std::vector{1, 4})) << "three pieces and 10 bytes more fit into the second stage";
  note_needed(problem, other, {130, 401}, limits);
  EXPECT_EQ(choose_cuts(problem, limits).ends, (std::vector{3, 4})) << "which is left";
  note_needed(problem, {{3, 4}, 3}, {430, 120}, limits);
  EXPECT_NE(refusal(problem, limits), "nothing was thrown");
  EXPECT_GT(least_memory_cuts(problem, limits).most(), 1'000'000) << "none is left";
}

TEST(ChooseCuts, ASearchedScheduleMakesDoWithOneMicroBatch) {
  CutLimits limits{.stages = 2, .memory_limit_bytes = 230, .micro_batches = 8, .receive_ahead = 0};
  const auto problem = pieces_of({1, 1, 1, 1});
  EXPECT_NE(refusal(problem, limits), "nothing was thrown") << "the first stage holds two of them";
  limits.holds_least = true;
  EXPECT_EQ(choose_cuts(problem, limits).ends, (std::vector{2, 4}));
}

TEST(ChooseCuts, ACutMovesUntilAStageIsEmpty) {
  const auto problem = pieces_of({1, 1, 1, 1});
  const auto cuts = choose_cuts(problem, {.stages = 2});
  EXPECT_EQ(moved_cut(problem, cuts, 0, 1)->longest_seconds, 3);
  EXPECT_EQ(moved_cut(problem, cuts, 0, -1)->ends, (std::vector{1, 4}));
  EXPECT_FALSE(moved_cut(problem, cuts, 0, 2));
  EXPECT_FALSE(moved_cut(problem, cuts, 0, -2));
}

// Every cut of a problem, one after the other.
class AllCuts {
 public:
  AllCuts(const CutProblem& problem, const CutLimits& limits) : problem_(problem), limits_(limits) { add(0); }
  double best() const { return best_; }
  // The most of a stage, of the cut that takes least.
  int64_t least_bytes() const { return least_bytes_; }

 private:
  void add(int chunk) {
    const int begin = ends_.empty() ? 0 : ends_.back();
    const int pieces = static_cast<int>(problem_.pieces.size());
    if (chunk == limits_.num_chunks()) {
      if (begin == pieces) look_at();
      return;
    }
    for (int end = begin + 1; end <= pieces; ++end) {
      ends_.push_back(end);
      add(chunk + 1);
      ends_.pop_back();
    }
  }

  void look_at() {
    double longest = 0;
    std::vector<int64_t> bytes_of_stages(static_cast<size_t>(limits_.stages));
    for (int stage = 0; stage < limits_.num_chunks(); ++stage) {
      const int begin = stage == 0 ? 0 : ends_[static_cast<size_t>(stage - 1)];
      const int end = ends_[static_cast<size_t>(stage)];
      int64_t slot = 0;
      int64_t bytes = 0;
      bool has_parameters = false;
      const CutProblem& own = problem_.of_chunk(stage);
      for (int i = begin; i < end; ++i) {
        const auto& piece = own.pieces[static_cast<size_t>(i)];
        slot += piece.kept_bytes;
        bytes += piece.persistent_bytes;
        has_parameters = has_parameters || piece.has_parameters;
      }
      longest = std::max(longest, chunk_seconds(own, begin, end));
      if (begin > 0) {
        const CutProblem& before = problem_.of_chunk(stage - 1);
        for (const CutProblem* side : {&before, &own}) {
          const auto& place = side->places[static_cast<size_t>(begin - 1)];
          longest = std::max({longest, place.forward_seconds, place.backward_seconds});
        }
        slot += own.places[static_cast<size_t>(begin - 1)].forward_bytes;
      }
      if (stage + 1 < limits_.num_chunks()) slot += own.places[static_cast<size_t>(end - 1)].backward_bytes;
      if (!has_parameters) return;
      bytes_of_stages[static_cast<size_t>(limits_.stage_of(stage))] +=
          bytes + held_micro_batches(limits_, stage) * slot;
    }
    const int64_t most = *std::max_element(bytes_of_stages.begin(), bytes_of_stages.end());
    least_bytes_ = std::min(least_bytes_, most);
    if (most <= limits_.memory_limit_bytes) best_ = std::min(best_, longest);
  }

  const CutProblem& problem_;
  const CutLimits& limits_;
  std::vector<int> ends_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t least_bytes_ = std::numeric_limits<int64_t>::max();
};

TEST(ChooseCuts, NoCutIsBetterInAThousandRandomProblems) {
  int num_solved = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    uint64_t next = 0;
    const auto draw = [&](int64_t below) { return random_below({.seed = seed}, next++, below); };
    const auto pieces = static_cast<size_t>(2 + draw(8));
    const auto random_problem = [&] {
      CutProblem problem;
      for (size_t i = 0; i < pieces; ++i) {
        problem.pieces.push_back({"", "", static_cast<double>(draw(9)), draw(100), draw(20), draw(4) > 0});
      }
      for (size_t i = 0; i + 1 < pieces; ++i) {
        problem.places.push_back({static_cast<double>(draw(6)), static_cast<double>(draw(6)), draw(9), draw(9)});
      }
      return problem;
    };
    CutProblem problem = random_problem();
    CutLimits limits{.stages = static_cast<int>(1 + draw(4)),
                     .memory_limit_bytes = 100 + draw(600),
                     .micro_batches = static_cast<int>(1 + draw(6)),
                     .holds_all = draw(3) == 0,
                     .receive_ahead = static_cast<int>(draw(2))};
    // In every fourth stages have two chunks, in turn or there and back.
    if (seed % 4 == 1 && limits.stages > 1) {
      limits.segments = 2;
      for (int chunk = 0; chunk < limits.num_chunks(); ++chunk) {
        const bool is_back = chunk >= limits.stages && seed % 8 == 1;
        limits.stages_of_chunks.push_back(is_back ? limits.num_chunks() - 1 - chunk : chunk % limits.stages);
      }
    }
    // In every third problem stages have different numbers of ranks.
    if (seed % 3 == 0) {
      problem.others.push_back(random_problem());
      for (size_t i = 0; i < pieces; ++i) {
        problem.others[0].pieces[i].has_parameters = problem.pieces[i].has_parameters;
      }
      for (int chunk = 0; chunk < limits.num_chunks(); ++chunk) problem.kinds.push_back(static_cast<int>(draw(2)));
    }
    const AllCuts all(problem, limits);
    double found = std::numeric_limits<double>::infinity();
    try {
      found = choose_cuts(problem, limits).longest_seconds;
      ++num_solved;
    } catch (const DoesNotFit& error) {
      EXPECT_EQ(error.least_limit_bytes(), all.least_bytes()) << "seed " << seed;
    } catch (const InvalidArgument&) {
      // It has too few pieces.
    }
    EXPECT_EQ(found, all.best()) << "seed " << seed;
  }
  EXPECT_GT(num_solved, 200);
}

}  // namespace
}  // namespace tessera::compiler
