// Laws that hold of every pipelined step: schedules are sound, keep to memory, and none is faster than the bound, not
// even the best there is; orders are carried out to the end whatever delays they meet. TESSERA_TEST_FULL=1 takes twenty
// times as many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "tessera/base/error.h"
#include "tessera/pipeline/delayed_run.h"
#include "tessera/pipeline/exhaustive.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/pipeline/search/find_schedule.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/pipeline/test_problems.h"
#include "tessera/pipeline/verify_schedule.h"
#include "tessera/testing/full.h"

namespace tessera::pipeline {
namespace {

using ::testing::IsEmpty;

uint64_t num_problems() { return is_full_test() ? 10'000 : 500; }

// The named schedules that the problem and its memory admit.
std::vector<std::pair<std::string, PipelineSchedule>> all_named(const PipelineProblem& problem) {
  std::vector<std::pair<std::string, PipelineSchedule>> result;
  for (const auto& name : schedule_names()) {
    if (!misfit(problem, name).empty()) continue;
    try {
      result.emplace_back(name, named_schedule(problem, name));
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("raise the limit, or take the schedule auto")) << name;
    }
  }
  return result;
}

TEST(PipelineLaws, SchedulesAreSoundWithinMemoryAndNotBelowTheBound) {
  uint64_t named = 0;
  uint64_t at_bound = 0;
  for (uint64_t seed = 0; seed < num_problems(); ++seed) {
    const auto problem = random_problem(seed);
    const auto found = find_schedule(problem, "auto", {.effort = 30'000, .seed = seed});
    ASSERT_THAT(verify(problem, found.schedule), IsEmpty()) << "seed " << seed << "\n" << print(found.schedule);
    ASSERT_GE(found.makespan_ns, found.bound.ns) << "seed " << seed << ": " << found.bound.reason;
    for (int s = 0; s < problem.num_stages(); ++s) {
      ASSERT_LE(found.peak_bytes[static_cast<size_t>(s)], problem.stages[static_cast<size_t>(s)].memory_limit_bytes);
    }
    for (const auto& [name, schedule] : all_named(problem)) {
      ASSERT_THAT(verify(problem, schedule), IsEmpty()) << name << ", seed " << seed << "\n" << print(schedule);
      ASSERT_LE(found.makespan_ns, schedule.makespan_ns()) << name << ", seed " << seed;
      ++named;
    }
    ASSERT_EQ(parse_pipeline_schedule(print(found.schedule)), found.schedule) << "seed " << seed;
    at_bound += found.makespan_ns == found.bound.ns ? 1 : 0;
  }
  std::cout << num_problems() << " problems, " << named << " named schedules, " << at_bound << " at the bound\n";
}

TEST(PipelineLaws, EqualProblemsHaveEqualSchedules) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto problem = random_problem(seed);
    const FindOptions options{.effort = 30'000, .seed = 7};
    EXPECT_EQ(find_schedule(problem, "auto", options).schedule, find_schedule(problem, "auto", options).schedule);
  }
}

// At most 3 stages, 4 chunks anyhow on them, 4 micro-batches.
PipelineProblem small_problem(uint64_t seed) {
  ProblemDraws draws(seed + 1'000'000);
  const auto stages = static_cast<int>(draws.between(1, 3));
  auto problem = equal_problem(
      {.stages = stages, .micro_batches = static_cast<int>(draws.between(1, 4)), .split = draws.below(2) == 0});
  const bool has_more_chunks = draws.below(2) == 0;
  if (has_more_chunks) {
    problem.micro_batches = std::min(problem.micro_batches, 3);
    for (int64_t c = draws.between(stages + 1, 4); problem.num_chunks() < c;)
      problem.chunks.push_back(problem.chunks[0]);
    for (int c = stages; c < problem.num_chunks(); ++c) {
      problem.chunks[static_cast<size_t>(c)].stage = static_cast<int>(draws.below(stages));
    }
    problem.borders.resize(problem.chunks.size() - 1);
  }
  for (auto& chunk : problem.chunks) {
    chunk.forward_ns = draws.between(0, 3);
    chunk.backward_ns = draws.between(0, 3);
    chunk.weight_gradient_ns = draws.between(0, 3);
    chunk.activation_bytes = draws.between(0, 3);
    chunk.weight_gradient_bytes = draws.between(0, chunk.activation_bytes);
  }
  for (auto& border : problem.borders) {
    for (auto* time : {&border.forward, &border.backward}) {
      *time = {.latency_ns = draws.between(0, 1), .duration_ns = has_more_chunks ? 0 : draws.between(0, 1)};
    }
  }
  for (auto& stage : problem.stages) stage.update_ns = draws.between(0, 2);
  problem.slots = static_cast<int>(draws.between(1, 2));
  if (draws.below(3) > 0) limit_memory(problem, draws.between(1, 3));
  return problem;
}

TEST(PipelineLaws, TheBoundIsNotAboveTheBestNorTheBestAboveAuto) {
  constexpr int64_t kMostStates = 60'000;
  int solved = 0;
  int bound_is_best = 0;
  int auto_is_best = 0;
  const uint64_t problems = is_full_test() ? 3'000 : 100;
  for (uint64_t seed = 0; seed < problems; ++seed) {
    const auto problem = small_problem(seed);
    const auto found = find_schedule(problem, "auto", {.effort = 100'000});
    // One more than what is known, so that the search has to come down to it itself.
    const auto best = least_makespan(problem, found.makespan_ns + 1, kMostStates);
    if (!best) continue;
    ASSERT_LE(found.bound.ns, *best) << "seed " << seed << ": " << found.bound.reason << "\n"
                                     << picture(found.schedule);
    ASSERT_LE(*best, found.makespan_ns) << "seed " << seed << "\n" << print(found.schedule);
    ++solved;
    bound_is_best += found.bound.ns == *best ? 1 : 0;
    auto_is_best += found.makespan_ns == *best ? 1 : 0;
  }
  std::cout << solved << " of " << problems << " small problems solved; the bound is the best in " << bound_is_best
            << ", auto in " << auto_is_best << "\n";
  EXPECT_GE(solved * 10, static_cast<int>(problems) * 7);
}

TEST(PipelineLaws, AnOrderIsCarriedOutToTheEndWhateverDelaysItMeets) {
  for (uint64_t seed = 0; seed < num_problems() / 2; ++seed) {
    const auto problem = random_problem(seed);
    const auto found = find_schedule(problem, "auto", {.effort = 10'000, .seed = seed});
    auto schedules = all_named(problem);
    schedules.emplace_back("auto", found.schedule);
    for (const auto& [name, schedule] : schedules) {
      for (uint64_t run = 0; run < 3; ++run) {
        ProblemDraws draws(seed * 10 + run);
        std::map<std::tuple<PhaseKind, int, int, bool>, int64_t> times;
        const auto time = [&](const Phase& phase, bool is_message) {
          const auto [known, is_new] = times.try_emplace({phase.kind, phase.chunk, phase.micro_batch, is_message}, 0);
          if (is_new) known->second = draws.below(1000);
          return known->second;
        };
        ASSERT_GE(run_delayed(problem, schedule, 1, time), 0) << name << ", seed " << seed << "\n" << print(schedule);
      }
    }
  }
}

// In the times that were predicted an order takes no longer than was predicted.
TEST(PipelineLaws, WithoutDelaysAnOrderTakesNoLongerThanPredicted) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto problem = random_problem(seed);
    const auto found = find_schedule(problem, "auto", {.effort = 10'000, .seed = seed});
    const auto time = [&](const Phase& phase, bool is_message) {
      if (!is_message) {
        return phase_ns(problem, phase, phase.chunk < 0 ? 0 : problem.chunks[static_cast<size_t>(phase.chunk)].stage);
      }
      const auto& border =
          problem.borders[static_cast<size_t>(phase.kind == PhaseKind::kForward ? phase.chunk : phase.chunk - 1)];
      const auto& transfer = phase.kind == PhaseKind::kForward ? border.forward : border.backward;
      return transfer.duration_ns + transfer.latency_ns;
    };
    auto without_updates = found.schedule;
    for (auto& stage : without_updates.stages) stage.pop_back();
    const auto end = run_delayed(problem, without_updates, problem.slots, time);
    EXPECT_GE(end, 0);
    EXPECT_LE(end, without_updates.makespan_ns()) << "seed " << seed;
  }
}

// 96 layers in so many chunks on 8 stages; each is to take less than a second in a release build, which GoogleTest
// prints.
struct Layers {
  int chunks = 0;
  bool back = false;
};
class NinetySixLayers : public testing::TestWithParam<Layers> {};

TEST_P(NinetySixLayers, AreSearchedWithinTheDefaultEffort) {
  const auto [chunks, back] = GetParam();
  auto problem = unequal_problem(
      {.stages = 8, .micro_batches = 64, .split = true, .rounds = chunks >= 16 ? 2 : 1, .back = back, .chunks = chunks},
      96);
  for (auto& border : problem.borders) border.forward = border.backward = {.latency_ns = 5, .duration_ns = 10};
  limit_memory(problem, 8);
  const auto found = find_schedule(problem);
  EXPECT_THAT(verify(problem, found.schedule), IsEmpty());
  std::cout << fmt::format("makespan / bound {:.4f}, bubble {:.4f}, {}; bound: {}\n",
                           static_cast<double>(found.makespan_ns) / static_cast<double>(found.bound.ns), found.bubble,
                           found.origin, found.bound.reason);
}

INSTANTIATE_TEST_SUITE_P(Chunks, NinetySixLayers,
                         testing::Values(Layers{8, false}, Layers{16, false}, Layers{16, true}, Layers{32, false},
                                         Layers{32, true}, Layers{96, false}, Layers{96, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.chunks) + (info.param.back ? "ThereAndBack" : "InTurn");
                         });

}  // namespace
}  // namespace tessera::pipeline
