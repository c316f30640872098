// Claims about the timelines of jobs: clocks that are brought together, files, steps that are cut, critical paths,
// sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/timeline/align_clocks.h"
#include "tessera/timeline/step_times.h"
#include "tessera/timeline/test_timelines.h"
#include "tessera/timeline/timeline_files.h"
#include "tessera/timeline/timeline_json.h"
#include "tessera/timeline/timeline_summary.h"

namespace tessera::timeline {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

// Two ranks of a host. Rank 1 computes for 60 ms, rank 0 for 20 and waits for it; then bytes travel for 10 ms.
//     rank 0   [step 0                                    100]
//                [run 10                              90]
//                 op 10-30, start 30-31, wait 31-80, op 80-90
//                 collective 31-79
//     rank 1   [step 0                                    100]
//                 op 10-70, start 70-71, wait 71-80, op 80-90;  collective 70-79
std::vector<RankTimeline> late_rank() {
  WrittenRank early(0, 2);
  early.does(SpanKind::kOperator, "forward", 10, 30)
      .does(SpanKind::kStart, "start", 30, 31)
      .does(SpanKind::kWait, "wait", 31, 80)
      .does(SpanKind::kOperator, "update", 80, 90)
      .does(SpanKind::kRun, "run", 10, 90)
      .does(SpanKind::kCallbacks, "the callbacks", 92, 97)
      .does(SpanKind::kStep, "step", 0, 100)
      .meets(0, 31, 79);
  WrittenRank late(1, 2);
  late.does(SpanKind::kOperator, "forward", 10, 70)
      .does(SpanKind::kStart, "start", 70, 71)
      .does(SpanKind::kWait, "wait", 71, 80)
      .does(SpanKind::kOperator, "update", 80, 90)
      .does(SpanKind::kRun, "run", 10, 90)
      .does(SpanKind::kStep, "step", 0, 100)
      .meets(0, 70, 79);
  return {late.part(), early.part()};
}

double sum_of(const std::array<double, kNumTimeUses>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

TEST(AlignedClocks, AreOneForRanksOfAHost) {
  const JobTimeline job = align(late_rank());
  ASSERT_EQ(job.clocks.size(), 1U);
  EXPECT_EQ(job.clocks[0].by, "same");
  EXPECT_EQ(job.ranks[0].rank.rank, 0);
  EXPECT_EQ(job.ranks[1].lanes[0].spans[0].begin_ns, 10 * kMs);
}

TEST(Steps, WaitForTheirDeviceWhateverCollectivesItDoesMeanwhile) {
  std::vector<RankTimeline> parts;
  for (int rank = 0; rank < 2; ++rank) {
    WrittenRank written(rank, 2);
    written.does(SpanKind::kStart, "steps 0 and on, for the device", 10, 20)
        .add(0, {.kind = SpanKind::kWait, .text = "the wait for the device"}, 20, 80)
        .does(SpanKind::kRun, "run", 10, 80)
        .does(SpanKind::kStep, "step", 0, 100)
        .meets(0, 30 + 10 * rank, 50, /*step=*/1, /*meets=*/false);
    parts.push_back(written.part());
  }
  const JobTimeline job = align(parts);
  const JobSteps steps = find_steps(job);
  ASSERT_EQ(steps.steps.size(), 1U);
  const auto summary = summarise(job, steps);
  EXPECT_DOUBLE_EQ(summary.seconds[static_cast<size_t>(TimeUse::kDevice)], 0.060);
  EXPECT_DOUBLE_EQ(summary.seconds[static_cast<size_t>(TimeUse::kTransfer)], 0);
  EXPECT_DOUBLE_EQ(summary.seconds[static_cast<size_t>(TimeUse::kLateRank)], 0);
  ASSERT_EQ(summary.collectives.size(), 1U);
  EXPECT_EQ(summary.collectives[0].late_rank, 1);
  EXPECT_DOUBLE_EQ(summary.collectives[0].seconds, 0.015) << "20 ms of the one, 10 of the other";
}

// Rank 1's clock is 5000 ms ahead.
std::vector<RankTimeline> two_hosts() {
  WrittenRank here(0, 2, "a");
  here.does(SpanKind::kStep, "step", 0, 100).meets(0, 10, 22).meets(1, 40, 51).system_ms(1'000'000);
  WrittenRank there(1, 2, "b");
  there.does(SpanKind::kStep, "step", 5000, 5100).meets(0, 5020, 5021).meets(1, 5030, 5052).system_ms(1'003'000);
  return {here.part(), there.part()};
}

TEST(AlignedClocks, OfHostsAreBoundedByTheirCollectives) {
  const JobTimeline job = align(two_hosts());
  ASSERT_EQ(job.clocks.size(), 2U);
  const AlignedClock& clock = job.clocks[1];
  EXPECT_EQ(clock.by, "collectives");
  // At least 10 - 5021 and 40 - 5052, at most 22 - 5020 and 51 - 5030 ms.
  EXPECT_EQ(clock.offset_ns, (-5011 * kMs - 4998 * kMs) / 2);
  ASSERT_TRUE(clock.uncertainty_ns);
  EXPECT_EQ(*clock.uncertainty_ns, 13 * kMs / 2);
  EXPECT_LE(std::abs(clock.offset_ns + 5000 * kMs), *clock.uncertainty_ns);
  const JobSteps steps = find_steps(job);
  EXPECT_EQ(steps.num_ended_early, 0);
  ASSERT_EQ(steps.meetings.size(), 2U);
  for (const Meeting& meeting : steps.meetings) {
    for (const MeetingMember& member : meeting.members) EXPECT_GE(member.end_ns, meeting.last_begin_ns());
  }
}

TEST(AlignedClocks, WithoutCollectivesAreTheSystems) {
  WrittenRank here(0, 2, "a");
  here.does(SpanKind::kStep, "step", 0, 100).system_ms(1'000'000);
  WrittenRank there(1, 2, "b");
  there.does(SpanKind::kStep, "step", 5000, 5100).system_ms(1'000'020);
  const JobTimeline job = align({here.part(), there.part()});
  ASSERT_EQ(job.clocks.size(), 2U);
  EXPECT_EQ(job.clocks[1].by, "system");
  EXPECT_FALSE(job.clocks[1].uncertainty_ns);
  // Both monotonic clocks stood at 0 when the systems' were 20 ms apart.
  EXPECT_EQ(job.clocks[1].offset_ns, 20 * kMs);
  const auto summary = summarise(job, find_steps(job));
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("by the systems' clocks alone")));
}

TEST(AlignedClocks, ThatCannotAgreeAreSaid) {
  auto parts = two_hosts();
  // A collective that would have ended on one host long before it began on the other, whatever the offset.
  parts[0].lanes[1].spans[1].begin_ns += 100 * kMs;
  parts[0].lanes[1].spans[1].end_ns += 100 * kMs;
  const JobTimeline job = align(parts);
  const JobSteps steps = find_steps(job);
  EXPECT_GT(steps.num_ended_early, 0);
  EXPECT_THAT(summarise(job, steps).notes, testing::Contains(HasSubstr("before another one began")));
}

TEST(AlignedClocks, RefusePartsThatDoNotBelongTogether) {
  EXPECT_THROW(align({}), InvalidArgument);
  auto parts = late_rank();
  parts[1].rank.rank = 1;
  EXPECT_THROW(align(parts), InvalidArgument);
  parts = late_rank();
  parts[1].rank.size = 3;
  EXPECT_THROW(align(parts), InvalidArgument);
  parts = late_rank();
  parts[1].rank.job = "another";
  try {
    align(parts);
    FAIL() << "parts of two jobs";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("different jobs"));
  }
}

TEST(Steps, AreMadeUpByWhatTheirTimeWasUsedFor) {
  const JobTimeline job = align(late_rank());
  const JobSteps steps = find_steps(job);
  ASSERT_EQ(steps.steps.size(), 1U);
  EXPECT_EQ(steps.num_crossed, 0);
  for (const RankStep& rank : steps.steps[0].ranks) {
    int64_t at_ns = rank.begin_ns;
    for (const UsedTime& time : rank.times) {
      EXPECT_EQ(time.begin_ns, at_ns);
      EXPECT_LT(time.begin_ns, time.end_ns);
      at_ns = time.end_ns;
    }
    EXPECT_EQ(at_ns, rank.end_ns);
  }
  const TimelineSummary summary = summarise(job, steps);
  EXPECT_NEAR(sum_of(summary.seconds), 0.1, 1e-12);
  EXPECT_NEAR(summary.rank_step_seconds, 0.1, 1e-12);
  const auto use = [&](TimeUse of) { return summary.seconds[static_cast<size_t>(of)]; };
  EXPECT_NEAR(use(TimeUse::kCompute), (0.030 + 0.070) / 2, 1e-12);
  EXPECT_NEAR(use(TimeUse::kLateRank), 0.039 / 2, 1e-12);            // from 31 until rank 1 came at 70
  EXPECT_NEAR(use(TimeUse::kTransfer), (0.010 + 0.009) / 2, 1e-12);  // until 80
  EXPECT_NEAR(use(TimeUse::kCallbacks), 0.005 / 2, 1e-12);
}

TEST(Steps, NameTheRankThatWasLate) {
  const JobTimeline job = align(late_rank());
  const JobSteps steps = find_steps(job);
  ASSERT_EQ(steps.meetings.size(), 1U);
  const Meeting& meeting = steps.meetings[0];
  EXPECT_TRUE(meeting.is_complete);
  EXPECT_EQ(job.ranks[meeting.members[meeting.late].rank].rank.rank, 1);
  EXPECT_EQ(meeting.waited_ns(meeting.members[0]), 39 * kMs);
  EXPECT_EQ(meeting.waited_ns(meeting.members[1]), 0);
  const TimelineSummary summary = summarise(job, steps);
  ASSERT_EQ(summary.ranks.size(), 2U);
  EXPECT_NEAR(summary.ranks[1].waited_for_seconds, 0.039, 1e-12);
  EXPECT_NEAR(summary.ranks[0].waited_seconds, 0.039, 1e-12);
  ASSERT_EQ(summary.collectives.size(), 1U);
  EXPECT_EQ(summary.collectives[0].late_rank, 1);
  EXPECT_EQ(summary.collectives[0].bytes, 1024);
  ASSERT_FALSE(summary.advice.empty());
  EXPECT_LE(summary.advice.size(), 5U);
  EXPECT_THAT(summary.advice, testing::Contains(testing::Field(&Advice::text, HasSubstr("why rank 1"))));
}

TEST(CriticalPaths, GoOverTheLateRank) {
  const JobTimeline job = align(late_rank());
  const JobSteps steps = find_steps(job);
  ASSERT_EQ(steps.steps.size(), 1U);
  const auto& path = steps.steps[0].path;
  ASSERT_FALSE(path.empty());
  int64_t at_ns = path.front().begin_ns;
  int64_t computed_by_late = 0;
  for (const PathPiece& piece : path) {
    EXPECT_EQ(piece.begin_ns, at_ns);
    at_ns = piece.end_ns;
    EXPECT_NE(piece.use, TimeUse::kLateRank);
    if (piece.use == TimeUse::kCompute && piece.end_ns <= 70 * kMs) {
      EXPECT_EQ(piece.rank, 1U);
      computed_by_late += piece.duration_ns();
    }
  }
  EXPECT_EQ(at_ns, 100 * kMs);
  EXPECT_EQ(path.front().begin_ns, 0);
  EXPECT_EQ(computed_by_late, 60 * kMs);
}

TEST(Steps, OfWhichSpansWereDroppedDoNotCount) {
  auto parts = late_rank();
  parts[0].lanes[1].num_dropped = 2;
  parts[0].lanes[1].whole_from_ns = 5 * kMs;
  const JobTimeline job = align(parts);
  const JobSteps steps = find_steps(job);
  EXPECT_THAT(steps.steps, IsEmpty());
  const TimelineSummary summary = summarise(job, steps);
  EXPECT_EQ(summary.num_steps, 0);
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("2 oldest spans")));
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("no step is whole")));
}

TEST(Steps, SpansThatCrossAreCountedAndTheSumStays) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kOperator, "a", 10, 50)
      .does(SpanKind::kOperator, "b", 40, 60)
      .does(SpanKind::kStep, "step", 0, 100);
  const JobTimeline job = align({rank.part()});
  const JobSteps steps = find_steps(job);
  EXPECT_EQ(steps.num_crossed, 1);
  EXPECT_NEAR(sum_of(summarise(job, steps).seconds), 0.1, 1e-12);
}

TEST(Steps, AnEvaluationCountsWithAllThatIsDoneInIt) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kOperator, "forward", 20, 40)
      .does(SpanKind::kBatch, "the next batch", 10, 20)
      .does(SpanKind::kEvaluation, "an evaluation", 10, 50)
      .does(SpanKind::kCallbacks, "the callbacks", 10, 60)
      .does(SpanKind::kStep, "step", 0, 100);
  const JobTimeline job = align({rank.part()});
  const auto seconds = summarise(job, find_steps(job)).seconds;
  EXPECT_NEAR(seconds[static_cast<size_t>(TimeUse::kEvaluation)], 0.040, 1e-12);
  EXPECT_NEAR(seconds[static_cast<size_t>(TimeUse::kCallbacks)], 0.010, 1e-12);
  EXPECT_NEAR(seconds[static_cast<size_t>(TimeUse::kCompute)], 0, 1e-12);
}

TEST(Summaries, HoldOperatorsAgainstTheirLimitAndAPrediction) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kOperator, "fc", 10, 90).does(SpanKind::kStep, "step", 0, 100);
  JobTimeline job = align({rank.part()});
  job.predicted = {
      {.name = "onednn.matmul", .source = "fc", .process = 0, .lane = 0, .begin_ns = 0, .end_ns = 20 * kMs}};
  const auto summary = summarise(job, find_steps(job), [](const SpanName&) { return 0.016; });
  ASSERT_EQ(summary.operators.size(), 1U);
  EXPECT_NEAR(summary.operators[0].seconds, 0.08, 1e-12);
  ASSERT_TRUE(summary.operators[0].limit_seconds);
  EXPECT_NEAR(*summary.operators[0].limit_seconds, 0.016, 1e-12);
  ASSERT_TRUE(summary.operators[0].predicted_seconds);
  EXPECT_NEAR(*summary.operators[0].predicted_seconds, 0.02, 1e-12);
  EXPECT_NEAR(summary.predicted_step_seconds.value_or(0), 0.02, 1e-12);
  ASSERT_FALSE(summary.advice.empty());
  EXPECT_THAT(summary.advice[0].text, HasSubstr("make fc faster"));
}

// Steps of a rank that take so many ms each, all of it in an operator of the step's own.
WrittenRank steps_of(const std::vector<int64_t>& durations_ms) {
  WrittenRank rank(0, 1);
  int64_t at_ms = 0;
  for (size_t i = 0; i < durations_ms.size(); ++i) {
    const int64_t end_ms = at_ms + durations_ms[i];
    const auto step = static_cast<int64_t>(i) + 1;
    rank.does(SpanKind::kOperator, i == 0 ? "first" : "later", at_ms, end_ms, step);
    rank.does(SpanKind::kStep, "step", at_ms, end_ms, step);
    at_ms = end_ms;
  }
  return rank;
}

TimelineSummary summary_of_steps(const std::vector<int64_t>& durations_ms) {
  const JobTimeline job = align({steps_of(durations_ms).part()});
  return summarise(job, find_steps(job));
}

TEST(Summaries, LeaveOutStepsAtTheBeginningThatWarmUp) {
  const auto summary = summary_of_steps({500, 10, 10, 20, 10, 10, 10, 10});
  EXPECT_THAT(summary.left_out_steps, testing::ElementsAre(1));
  EXPECT_THAT(summary.notes, testing::Contains("step 1 is left out: it took 500.00 ms"));
  EXPECT_EQ(summary.num_steps, 8) << "that are whole";
  EXPECT_NEAR(summary.rank_step_seconds, 0.080 / 7, 1e-12);
  EXPECT_NEAR(summary.path_seconds[static_cast<size_t>(TimeUse::kCompute)], 0.080 / 7, 1e-12);
  EXPECT_EQ(summary.slowest_step, 4);
  ASSERT_EQ(summary.operators.size(), 1U);
  EXPECT_EQ(summary.operators[0].text, "later");
  EXPECT_NEAR(summary.operators[0].share, 1, 1e-12);
  ASSERT_EQ(summary.ranks.size(), 1U);
  EXPECT_NEAR(summary.ranks[0].step_seconds, 0.080 / 7, 1e-12);
  for (const Advice& advice : summary.advice) EXPECT_THAT(advice.text, testing::Not(HasSubstr("first")));
  const auto several = summary_of_steps({500, 40, 10, 10, 10, 10, 10, 10});
  EXPECT_THAT(several.left_out_steps, testing::ElementsAre(1, 2));
  EXPECT_THAT(several.notes, testing::Contains("steps 1 to 2 are left out: they took up to 500.00 ms"));
}

TEST(Summaries, CountSlowStepsThatDoNotWarmUp) {
  for (const auto& durations_ms : std::vector<std::vector<int64_t>>{
           {10, 500, 10, 10, 10, 10, 10, 10},  // it is not at the beginning
           {25, 10, 10, 10, 10, 10, 10, 10},   // it is not much slower
           {500, 10, 10},                      // there are few
       }) {
    const auto summary = summary_of_steps(durations_ms);
    EXPECT_THAT(summary.left_out_steps, IsEmpty());
    EXPECT_THAT(summary.notes, IsEmpty());
    EXPECT_NEAR(summary.rank_step_seconds * static_cast<double>(durations_ms.size()),
                1e-3 * static_cast<double>(std::accumulate(durations_ms.begin(), durations_ms.end(), int64_t{0})),
                1e-9);
  }
}

TEST(Summaries, TellOperatorsOfADeviceByAStepThatWarmsUpWhereNoOtherDoes) {
  WrittenRank rank = steps_of({500, 10, 10, 10});
  rank.add(1, {.kind = SpanKind::kDevice, .text = "conv", .kernel = "cudnn.conv2d", .graph = "train"}, 10, 15, 1);
  for (int64_t step = 2; step <= 4; ++step) {
    const int64_t begin_ms = 490 + 10 * (step - 1);
    rank.add(1, {.kind = SpanKind::kDevice, .text = "steps 0 and on" + std::string(kAsOne), .graph = "train"}, begin_ms,
             begin_ms + 8, step);
  }
  const JobTimeline job = align({rank.part()});
  const auto summary = summarise(job, find_steps(job));
  EXPECT_THAT(summary.left_out_steps, testing::ElementsAre(1));
  const auto conv = std::ranges::find(summary.operators, "conv", &OperatorTime::text);
  ASSERT_NE(conv, summary.operators.end());
  EXPECT_NEAR(conv->seconds, 0.005, 1e-12);
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("devices replay 8.00 ms of a rank's step as one")));
}

TEST(Summaries, TellOperatorsOfADeviceByItsClockAndWhatItReplaysAsAWhole) {
  const auto on_device = [](const std::string& text, const std::string& kernel) {
    return SpanName{.kind = SpanKind::kDevice, .text = text, .source = text, .kernel = kernel, .graph = "train"};
  };
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kStep, "step", 0, 100)
      .add(1, on_device("fc", "cublaslt.matmul"), 10, 30)
      .add(1, on_device("conv", "cudnn.conv2d"), 30, 80)
      .add(1, on_device("copy", ""), 80, 85)
      .does(SpanKind::kStep, "step", 100, 200, 2)
      .add(1, on_device("steps 0 and on" + std::string(kAsOne), ""), 110, 160, 2);
  const JobTimeline job = align({rank.part()});
  const auto summary = summarise(job, find_steps(job), [](const SpanName&) { return 0.01; });
  ASSERT_EQ(summary.num_steps, 2);
  ASSERT_EQ(summary.operators.size(), 3U);
  EXPECT_EQ(summary.operators[0].text, "conv");
  EXPECT_NEAR(summary.operators[0].seconds, 0.05, 1e-12);
  EXPECT_NEAR(summary.operators[0].share, 0.5, 1e-12);
  EXPECT_NEAR(summary.operators[0].limit_seconds.value_or(0), 0.01, 1e-12);
  EXPECT_EQ(summary.operators[1].text, "fc");
  EXPECT_NEAR(summary.operators[1].seconds, 0.02, 1e-12);
  EXPECT_EQ(summary.operators[2].text, "copy");
  EXPECT_FALSE(summary.operators[2].limit_seconds);
  EXPECT_THAT(summary.notes, testing::Contains(HasSubstr("devices replay 25.00 ms of a rank's step as one")));
}

TEST(Files, OfAJobAreReadAsTheyWereWritten) {
  JobTimeline job = align(late_rank());
  job.predicted = {{.name = "k", .source = "fc", .process = 0, .lane = 1, .begin_ns = 5, .end_ns = 9}};
  const std::string text = job_json(job, find_steps(job));
  const auto json = nlohmann::json::parse(text);
  const JobTimeline read = parse_timeline(text, "job.json");
  ASSERT_EQ(read.ranks.size(), 2U);
  EXPECT_EQ(read.clocks.size(), 1U);
  EXPECT_EQ(read.predicted.size(), 1U);
  EXPECT_EQ(read.predicted[0].begin_ns, 5);
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(read.ranks[r].names, job.ranks[r].names);
    for (size_t l = 0; l < 2; ++l) {
      EXPECT_THAT(read.ranks[r].lanes[l].spans, testing::UnorderedElementsAreArray(job.ranks[r].lanes[l].spans));
    }
  }
  // What is said of a timeline does not depend on whether it was read.
  EXPECT_EQ(job_json(read, find_steps(read)), text);
  int num_of_path = 0, num_of_late = 0, num_critical = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.value("cat", "") == "critical path") ++num_of_path;
    if (event.at("ph") != "X" || !event.contains("args")) continue;
    if (event.at("args").value("late_rank", -1) == 1) {
      ++num_of_late;
      EXPECT_EQ(event.at("args").at("call_bytes"), 1024);
    }
    if (event.at("args").value("critical", false)) ++num_critical;
  }
  EXPECT_GT(num_of_path, 2);
  EXPECT_EQ(num_of_late, 2);
  EXPECT_GT(num_critical, 2);
}

TEST(Files, ThatAreNoTimelineAreRefused) {
  const std::string good = part_json(late_rank()[0]);
  EXPECT_NO_THROW(parse_timeline(good, "x"));
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2), std::string("\xff"),
        std::string(R"({"traceEvents":[]})"), std::string(R"({"otherData":{"tessera_timeline":2}})"),
        std::string(R"({"otherData":{"tessera_timeline":1,"origin_ns":0,"ranks":[]},"traceEvents":[]})")}) {
    EXPECT_THROW(parse_timeline(text, "x"), InvalidArgument) << text;
  }
  // Numbers that lead outside of what there is.
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{R"("n":0)", R"("n":99)"},
                                                        {R"("n":0)", R"("n":-1)"},
                                                        {R"("n":0)", R"("n":1e99)"},
                                                        {R"("rank":1)", R"("rank":2)"},
                                                        {R"("size":2)", R"("size":0)"},
                                                        {R"("dur":)", R"("dur":-)"},
                                                        {R"("ph":"X")", R"("ph":7)"},
                                                        {R"("kind":")", R"("kind":"no)"},
                                                        {R"("text":)", R"("flops":-1,"text":)"},
                                                        {R"("text":)", R"("flops":1e40,"text":)"}}) {
    EXPECT_THROW(parse_timeline(broken(from, to), "x"), InvalidArgument) << from << " " << to;
  }
}

TEST(Files, OfRanksAreJoinedAlsoWhereOneIsMissing) {
  MemoryFileSystem files;
  EXPECT_EQ(join_job(files, "job.json", 2), "");
  const auto parts = late_rank();
  files.write_atomically("job.json.rank.1", part_json(parts[0]));
  RankTimeline killed = parts[1];
  killed.is_written = false;
  for (RecordedLane& lane : killed.lanes) lane.spans.clear();
  files.write_atomically("job.json.rank.0", part_json(killed));
  const std::string words = join_job(files, "job.json", 2);
  EXPECT_THAT(words, HasSubstr("without rank 0"));
  EXPECT_FALSE(files.exists("job.json.rank.0"));
  EXPECT_FALSE(files.exists("job.json.rank.1"));
  const JobTimeline job = read_timeline(files, "job.json");
  EXPECT_EQ(job.missing_ranks(), std::vector<int>{0});
  EXPECT_EQ(summarise(job, find_steps(job)).num_steps, 1);
}

TEST(Files, ThatRanksCouldNotWriteAreToldWithTheReason) {
  MemoryFileSystem files;
  const auto parts = late_rank();
  const auto fail = [&](RankTimeline part) {
    part.is_written = false;
    part.failure = "No space left on device";
    for (RecordedLane& lane : part.lanes) lane.spans.clear();
    files.write_atomically(fmt::format("job.json.rank.{}", part.rank.rank), part_json(part));
  };
  for (const RankTimeline& part : parts) fail(part);
  EXPECT_EQ(join_job(files, "job.json", 2),
            "there is no timeline job.json: ranks 0, 1 could not write: No space left on device");
  EXPECT_FALSE(files.exists("job.json.rank.0"));
  // Of one there is nothing but the file.
  files.write_atomically("job.json.rank.1", part_json(parts[0]));
  files.write_atomically("job.json.rank.0", "");
  EXPECT_THAT(join_job(files, "job.json", 2),
              HasSubstr("without rank 0, which could not write: there was no room on the disk for a word"));
  EXPECT_TRUE(files.exists("job.json"));
  fail(parts[1]);
  files.write_atomically("job.json.rank.1", part_json(parts[0]));
  EXPECT_THAT(join_job(files, "job.json", 2),
              HasSubstr("without rank 0, which could not write: No space left on device"));
}

TEST(Files, ThatCannotBeJoinedStay) {
  MemoryFileSystem files;
  files.write_atomically("job.json.rank.0", part_json(late_rank()[1]));
  files.write_atomically("job.json.rank.1", "no JSON");
  EXPECT_THAT(join_job(files, "job.json", 2), HasSubstr("could not be joined"));
  EXPECT_TRUE(files.exists("job.json.rank.0"));
  EXPECT_TRUE(files.exists("job.json.rank.1"));
}

TEST(Files, OfAnEarlierJobAreRemoved) {
  MemoryFileSystem files;
  for (const char* name : {"d/job.json", "d/job.json.request", "d/job.json.rank.0", "d/job.json.rank.1", "d/other"}) {
    files.write_atomically(name, "x");
  }
  remove_earlier(files, "d/job.json", {0});
  EXPECT_THAT(files.list("d"), testing::UnorderedElementsAre("job.json.rank.1", "other"));
}

TEST(Predictions, AreReadFromSimulations) {
  const auto spans = parse_predicted(
      R"({"traceEvents":[{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{}},
          {"ph":"X","name":"onednn.matmul","cat":"compute","ts":1.5,"dur":2,"pid":0,"tid":0,"args":{"step":3,"source":"fc"}}]})",
      "step.json");
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].source, "fc");
  EXPECT_EQ(spans[0].begin_ns, 1500);
  EXPECT_EQ(spans[0].end_ns, 3500);
  EXPECT_THROW(parse_predicted("{}", "x"), InvalidArgument);
  EXPECT_THROW(parse_predicted(R"({"traceEvents":[]})", "x"), InvalidArgument);
}

}  // namespace
}  // namespace tessera::timeline
