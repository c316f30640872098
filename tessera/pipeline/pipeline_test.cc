// Claims about pipelined steps: problems that are refused, faults that the verifier sees, the named schedules' bubbles,
// and texts that read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/pipeline/schedule_text.h"
#include "tessera/pipeline/search/find_schedule.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/pipeline/test_problems.h"
#include "tessera/pipeline/verify_schedule.h"

namespace tessera::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

MATCHER_P(Refuses, message, "") {
  return ExplainMatchResult(ThrowsMessage<InvalidArgument>(message), arg, result_listener);
}

PipelineSchedule sound_schedule(const PipelineProblem& problem, std::string_view name) {
  auto schedule = named_schedule(problem, name);
  EXPECT_THAT(verify(problem, schedule), IsEmpty()) << name << "\n" << picture(schedule);
  return schedule;
}

// Problems

TEST(PipelineProblem, ChunksGoOverTheStagesInTurnOrThereAndBack) {
  EXPECT_THAT(in_turn(8, 4), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(in_turn(8, 4, 2), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(in_turn(5, 2), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(there_and_back(8, 4), ElementsAre(0, 1, 2, 3, 3, 2, 1, 0));
  EXPECT_THAT([] { in_turn(3, 4); }, Refuses(HasSubstr("4 visits to stages need as many chunks, there are 3")));
}

TEST(PipelineProblem, IsRefusedForItsPlacement) {
  const auto refuses = [](auto&& edit, const std::string& message) {
    auto problem = equal_problem({.stages = 2});
    edit(problem);
    EXPECT_THAT([&] { validate(problem); }, Refuses(message));
  };
  refuses([](auto& p) { p.stages.emplace_back(); },
          "pipeline stage 2: must have a chunk, has none; give it one or use 2 stages");
  refuses([](auto& p) { p.chunks[1].stage = 2; }, "pipeline chunk 1: must be on one of the stages 0..1, is on 2");
  refuses([](auto& p) { p.chunks[1].stage = -1; }, "pipeline chunk 1: must be on one of the stages 0..1, is on -1");
  refuses([](auto& p) { p.stages.clear(); }, "pipeline: needs at least one stage, has none");
  refuses([](auto& p) { p.chunks.clear(); }, "pipeline: needs at least one chunk, has none");
  refuses([](auto& p) { p.borders.clear(); }, "pipeline: 2 chunks have 1 borders between them, 0 are given");
  refuses([](auto& p) { p.micro_batches = 0; }, "pipeline: needs at least one micro-batch, has 0");
  refuses(
      [](auto& p) { p.micro_batches = 1'000'000'000; },
      "pipeline: 2 chunks and 1000000000 micro-batches have more than 67108864 phases; cut one of them less finely");
  refuses([](auto& p) { p.slots = 0; }, "pipeline: a border needs at least one slot, has 0");
}

TEST(PipelineProblem, IsRefusedForItsNumbers) {
  const auto refuses = [](auto&& edit, const std::string& message) {
    auto problem = equal_problem({.stages = 2});
    edit(problem);
    EXPECT_THAT([&] { validate(problem); }, Refuses(message));
  };
  refuses([](auto& p) { p.chunks[1].forward_ns = -1; },
          "pipeline chunk 1: the time of forward must be at least 0, found -1");
  refuses([](auto& p) { p.borders[0].backward.latency_ns = -3; },
          "pipeline border 0: a latency must be at least 0, found -3");
  refuses([](auto& p) { p.stages[1].update_ns = -1; },
          "pipeline stage 1: the time of the update must be at least 0, found -1");
  refuses([](auto& p) { p.chunks[0].activation_bytes = -1; },
          "pipeline chunk 0: what it keeps must be at least 0, found -1");
  refuses([](auto& p) { p.chunks[0].weight_gradient_bytes = 3; },
          "pipeline chunk 0: what its weight gradient needs is part of what it keeps, found 3 of 2 bytes");
  refuses([](auto& p) { p.chunks[0].backward_ns = int64_t{1} << 58; },
          "pipeline: the times of a step must add up to at most 2^60, 8 times 288230376151711744 does not; use a "
          "larger unit");
  refuses([](auto& p) { p.chunks[0].activation_bytes = std::numeric_limits<int64_t>::max(); },
          "pipeline: the bytes of a step must add up to at most 2^60, 8 times 9223372036854775807 does not; use a "
          "larger unit");
}

TEST(PipelineProblem, IsRefusedWhereNoMicroBatchFits) {
  auto problem = equal_problem({.stages = 2, .rounds = 2});
  for (auto& border : problem.borders) border.forward_slot_bytes = 5;
  problem.stages[1].memory_limit_bytes = 23;
  EXPECT_THAT(
      [&] { validate(problem); },
      Refuses("pipeline stage 1: no micro-batch fits into its limit of 23 bytes (23 B): its chunks keep 4 bytes of "
              "each, its receive slots take 20; raise the limit to 24 bytes, make micro-batches smaller or "
              "recompute activations"));
  problem.stages[1].memory_limit_bytes = 24;
  const auto found = find_schedule(problem);
  EXPECT_THAT(verify(problem, found.schedule), IsEmpty());
  EXPECT_EQ(found.peak_bytes[1], 24);
}

// Named schedules

TEST(NamedSchedule, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto problem = equal_problem({});
  EXPECT_THAT(
      [&] { find_schedule(problem, "zb_h3"); },
      Refuses("pipeline schedule \"zb_h3\": no schedule has that name, did you mean zb_h1?; there are gpipe, 1f1b, "
              "interleaved_1f1b, zb_h1, zb_h2, zb_v and auto"));
}

TEST(NamedSchedule, IsRefusedWhereItDoesNotFit) {
  const auto refuses = [](const Equal& equal, std::string_view name, const std::string& message) {
    EXPECT_THAT([&] { named_schedule(equal_problem(equal), name); }, Refuses(message));
  };
  refuses({.micro_batches = 3}, "1f1b",
          "pipeline schedule \"1f1b\": 4 stages need at least 4 micro-batches, there are 3; cut the batch finer or use "
          "fewer stages");
  refuses({.micro_batches = 6, .split = true}, "zb_h2",
          "pipeline schedule \"zb_h2\": 4 stages need at least 7 micro-batches, there are 6; cut the batch finer or "
          "use fewer stages");
  refuses({.micro_batches = 6, .rounds = 2}, "interleaved_1f1b",
          "pipeline schedule \"interleaved_1f1b\": the number of micro-batches must be a multiple of the 4 stages, it "
          "is 6; take 4 or 8");
  refuses({.rounds = 2}, "1f1b",
          "pipeline schedule \"1f1b\": the chunks must go once over the stages, 0, 1, ..., they go 0, 1, 2, 3, 0, 1, "
          "2, 3; place "
          "them so or take another schedule");
  refuses({.split = true}, "zb_v",
          "pipeline schedule \"zb_v\": the chunks must go over the stages there and back, 0, 1, ..., 1, 0, they go 0, "
          "1, 2, 3; "
          "place them so or take another schedule");
  refuses({}, "zb_h1",
          "pipeline schedule \"zb_h1\": backward must be split into the gradient of the input and that of the weights, "
          "it is one "
          "phase; set split_backward");
}

TEST(NamedSchedule, IsRefusedWhereItsMemoryDoesNotFit) {
  auto problem = equal_problem({});
  limit_memory(problem, 4);
  EXPECT_THAT(
      [&] { named_schedule(problem, "gpipe"); },
      Refuses(
          "pipeline schedule \"gpipe\": stage 0 needs 16 bytes (16 B), its limit is 8; raise the limit, or take the "
          "schedule auto, which keeps to it"));
  EXPECT_THAT(peak_bytes(problem, sound_schedule(problem, "1f1b")), ElementsAre(8, 6, 4, 2));
}

// Bubbles: equal stages, transfers that take no time, ample memory.

TEST(NamedSchedule, GpipeAnd1f1bIdleForOneMicroBatchLessThanStages) {
  for (const int p : {2, 3, 4, 8, 16}) {
    for (const int m : {p, 2 * p, 4 * p + 1}) {
      for (const int64_t backward : {1, 2, 3}) {
        for (const auto* name : {"gpipe", "1f1b"}) {
          const auto problem = equal_problem({.stages = p, .micro_batches = m, .backward = backward});
          const auto schedule = sound_schedule(problem, name);
          EXPECT_EQ(schedule.makespan_ns(), (m + p - 1) * (2 + backward)) << name << " " << p << " " << m;
          EXPECT_NEAR(bubble(schedule), static_cast<double>(p - 1) / (m + p - 1), 1e-12);
        }
      }
    }
  }
}

TEST(NamedSchedule, InterleavedIdlesForAFractionOfThat) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int v : {2, 3, 4}) {
      for (const int m : {p, 2 * p, 5 * p}) {
        const auto problem = equal_problem({.stages = p, .micro_batches = m, .backward = 1, .rounds = v});
        const auto schedule = sound_schedule(problem, "interleaved_1f1b");
        EXPECT_EQ(schedule.makespan_ns(), (v * m + p - 1) * 3) << p << " " << v << " " << m;
        EXPECT_NEAR(bubble(schedule), static_cast<double>(p - 1) / (v * m + p - 1), 1e-12);
      }
    }
  }
}

struct Times {
  int64_t f;
  int64_t b;
  int64_t w;
};

TEST(NamedSchedule, ZbH1IdlesForForwardAndBackwardLessTheWeightGradient) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {p, 2 * p, 4 * p}) {
      for (const auto& [f, b, w] : {Times{1, 1, 1}, {2, 2, 1}, {2, 3, 2}, {3, 4, 3}, {2, 2, 2}}) {
        const auto problem = equal_problem(
            {.stages = p, .micro_batches = m, .forward = f, .backward = b, .weight_gradient = w, .split = true});
        const auto schedule = sound_schedule(problem, "zb_h1");
        EXPECT_EQ(schedule.makespan_ns(), m * (f + b + w) + (p - 1) * (f + b - w))
            << p << " " << m << " " << f << " " << b << " " << w << "\n"
            << picture(schedule);
      }
    }
  }
}

// No stage is idle from its first phase to its last; they begin and end one after the other.
void expect_full_spans(const PipelineProblem& problem, std::string_view name, int64_t makespan) {
  const auto schedule = sound_schedule(problem, name);
  for (int s = 0; s < problem.num_stages(); ++s) {
    EXPECT_EQ(idle_within_span_ns(schedule, s), 0) << name << " stage " << s << "\n" << picture(schedule);
  }
  EXPECT_EQ(schedule.makespan_ns(), makespan) << picture(schedule);
}

TEST(NamedSchedule, ZbH2AndZbVIdleAtNoTimeWithinAStagesSpan) {
  for (const int p : {2, 3, 4, 6, 8}) {
    for (const int m : {2 * p, 3 * p, 4 * p}) {
      expect_full_spans(equal_problem({.stages = p, .micro_batches = m, .split = true}), "zb_h2", 3 * m + p - 1);
      expect_full_spans(equal_problem({.stages = p, .micro_batches = m, .split = true, .back = true}), "zb_v",
                        6 * m + p - 1);
    }
  }
}

TEST(NamedSchedule, KeepsAsMuchAsItsPaperSays) {
  constexpr int kStages = 4;
  constexpr int kMicroBatches = 12;
  const Equal once{.stages = kStages, .micro_batches = kMicroBatches, .split = true};
  Equal back = once;
  back.back = true;
  // In bytes: two for each micro-batch in flight, one for a weight gradient that waits.
  const auto most = [&](const Equal& equal, std::string_view name) {
    const auto problem = equal_problem(equal);
    const auto peaks = peak_bytes(problem, named_schedule(problem, name));
    return *std::max_element(peaks.begin(), peaks.end());
  };
  EXPECT_EQ(most(once, "gpipe"), 2 * kMicroBatches);
  EXPECT_EQ(most(once, "1f1b"), 2 * kStages);
  EXPECT_EQ(most(once, "zb_h1"), 2 * kStages);
  EXPECT_LE(most(once, "zb_h2"), 2 * (2 * kStages - 1));
  EXPECT_LE(most(back, "zb_v"), 2 * 2 * kStages);  // chunks are half as large
}

// Texts

TEST(ScheduleText, ReadsBack) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto schedule = find_schedule(random_problem(seed), "auto", {.effort = 1000}).schedule;
    EXPECT_EQ(parse_pipeline_schedule(print(schedule)), schedule) << print(schedule);
  }
}

TEST(ScheduleText, IsRefusedByTheLine) {
  const auto refuses = [](std::string_view text, const std::string& message) {
    EXPECT_THAT([&] { parse_pipeline_schedule(text); }, Refuses(HasSubstr(message))) << text;
  };
  refuses("", "line 1: expected \"pipeline_schedule N stages\"");
  refuses("pipeline_schedule 0 stages\ntransfers\n", "line 1: a schedule has 1 to");
  refuses("pipeline_schedule 1 stages\nstage 1\n", "line 2: expected stage 0");
  refuses("pipeline_schedule 1 stages\nstage 0\n  0..1 sideways c0 m0\n", "line 3: no phase is called \"sideways\"");
  refuses("pipeline_schedule 1 stages\nstage 0\n  0..1 forward c0\n", "line 3: forward needs c and m");
  refuses("pipeline_schedule 1 stages\nstage 0\n  0..1 forward c0 m99999999999\n",
          "line 3: \"m99999999999\" is out of range");
  refuses("pipeline_schedule 1 stages\nstage 0\n  0-1 update\n", "line 3: expected \"  START..END PHASE\"");
  refuses("pipeline_schedule 1 stages\nstage 0\n", "the transfers are missing");
  refuses("pipeline_schedule 2 stages\nstage 0\ntransfers\n", "2 stages are announced, 1 are there");
  refuses("pipeline_schedule 1 stages\n  0..1 update\n", "line 2: expected stage 0");
}

TEST(ScheduleText, APictureShowsALongStepInFewColumns) {
  const auto problem = equal_problem({.micro_batches = 64, .forward = 1001, .backward = 997});
  const auto text = picture(named_schedule(problem, "1f1b"), {.max_columns = 20});
  EXPECT_EQ(text.find('\n'), std::string("stage 0 ||").size() + 20 * 4 - 1) << text;
}

TEST(ScheduleText, APhaseThatBeginsWithinAColumnIsShownThere) {
  const PipelineSchedule schedule{
      .stages = {{{{PhaseKind::kForward, 0, 0}, 0, 3}, {{PhaseKind::kBackward, 0, 0}, 3, 6}}}, .transfers = {}};
  EXPECT_EQ(picture(schedule, {.column_ns = 2}), "stage 0 |F0 B0 --|\n");
}

TEST(ScheduleText, ALegendSaysHowManyPhasesAreNotSeen) {
  const PipelineSchedule schedule{
      .stages = {{{{PhaseKind::kForward, 0, 0}, 0, 3'000'000}, {{PhaseKind::kBackward, 0, 0}, 3'000'000, 6'000'000}}},
      .transfers = {}};
  EXPECT_EQ(legend(schedule), "F forward, B backward, and the micro-batch; -- goes on, .. idle; a column is 3.00 ms\n");
  EXPECT_EQ(picture(schedule, {.max_width = 12}), "stage 0 |F0|\n");
  EXPECT_EQ(
      legend(schedule, {.max_width = 12}),
      "F forward, B backward, and the micro-batch; -- goes on, .. idle; a column is 6.00 ms; 1 phase shorter than "
      "a column is not seen\n");
}

// The verifier

class Verifier : public testing::Test {
 public:
  Verifier() {
    problem.borders[0].forward = problem.borders[0].backward = {.latency_ns = 1, .duration_ns = 2};
    problem.slots = 1;
    schedule = named_schedule(problem, "1f1b");
    EXPECT_THAT(verify(problem, schedule), IsEmpty()) << print(schedule);
  }
  TimedPhase& phase(PhaseKind kind, int chunk, int micro_batch) {
    for (auto& stage : schedule.stages) {
      for (auto& timed : stage) {
        if (timed.phase == Phase{kind, chunk, micro_batch}) return timed;
      }
    }
    check(false, "no such phase");
    return schedule.stages[0][0];
  }
  void expect_faults(const std::vector<std::string>& faults) {
    EXPECT_EQ(verify(problem, schedule), faults) << print(schedule);
  }

  PipelineProblem problem =
      equal_problem({.stages = 2, .micro_batches = 2, .forward = 4, .backward = 4, .split = true});
  PipelineSchedule schedule;
};

TEST_F(Verifier, SeesWhatIsMissing) {
  auto& phases = schedule.stages[1];
  std::erase_if(phases, [](const TimedPhase& timed) { return timed.phase == Phase{PhaseKind::kWeightGradient, 1, 1}; });
  expect_faults({"weight_gradient c1 m1: is missing"});
  phases.pop_back();
  EXPECT_THAT(verify(problem, schedule),
              ElementsAre("stage 1: must have one update, has 0", "weight_gradient c1 m1: is missing"));
  schedule.transfers.pop_back();
  EXPECT_THAT(verify(problem, schedule), testing::Contains("transfer of backward c1 m1: is missing"));
}

TEST_F(Verifier, SeesWhatIsThereTwiceOrElsewhere) {
  schedule.stages[0].insert(schedule.stages[0].begin(), {{PhaseKind::kForward, 1, 0}, 0, 4});
  EXPECT_THAT(verify(problem, schedule), testing::Contains("forward c1 m0 on stage 0: its chunk is on stage 1"));
  schedule.stages[0][0].phase = {PhaseKind::kForward, 0, 0};
  EXPECT_THAT(verify(problem, schedule), testing::Contains("forward c0 m0 on stage 0: is there more than once"));
  schedule.stages[0][0].phase = {PhaseKind::kForward, 2, 0};
  EXPECT_THAT(verify(problem, schedule), testing::Contains("forward c2 m0 on stage 0: the problem has no such phase"));
}

TEST_F(Verifier, SeesWrongTimes) {
  auto& last = schedule.stages[1].back();
  last.end_ns += 1;
  expect_faults({fmt::format("update on stage 1: takes 1, the problem says 0")});
  last.start_ns -= 1;
  EXPECT_THAT(verify(problem, schedule),
              testing::Contains("update on stage 1: starts at 24, before 25, when the phase before it ends"));
}

TEST_F(Verifier, SeesWhatStartsBeforeWhatItNeeds) {
  auto& forward = phase(PhaseKind::kForward, 1, 0);
  forward.start_ns -= 1;
  forward.end_ns -= 1;
  expect_faults({"forward c1 m0: starts at 6, its message arrives at 7"});
  forward.start_ns += 2;
  forward.end_ns += 2;
  EXPECT_THAT(verify(problem, schedule), testing::Contains("backward c1 m0: starts at 11, forward c1 m0 ends at 12"));
}

TEST_F(Verifier, SeesABusyLaneAndASlotThatIsTaken) {
  ASSERT_EQ(schedule.transfers[1].sender, (Phase{PhaseKind::kForward, 0, 1}));
  auto& second = schedule.transfers[1];
  second.arrival_ns -= second.start_ns - 8;
  second.start_ns = 8;
  expect_faults({"border 0 forward: has 1 slots, 2 messages are on the way or unread at a time"});
  problem.borders[0].forward.duration_ns = 5;
  EXPECT_THAT(
      verify(problem, schedule),
      testing::Contains(
          "transfer of forward c0 m1: starts at 8, the lane from stage 0 to 1 carries that of forward c0 m0 until 9"));
}

TEST_F(Verifier, SeesMemoryThatIsTooSmall) {
  problem.stages[0].memory_limit_bytes = 3;
  expect_faults({"stage 0: holds up to 4 bytes, its limit is 3"});
}

}  // namespace
}  // namespace tessera::pipeline
