// Claims about measuring the machine, on a clock that the runs themselves move.
#include "tessera/session/machine_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"

namespace tessera::session {
namespace {

using testing::ElementsAre;
using testing::Key;

struct Run {
  int64_t ms = 0;
  bool is_disturbed = false;
};

// What a timer makes of these runs, the last of them again and again.
struct Measuring {
  Measuring(cluster::Context& context, std::vector<Run> runs)
      : rank(context, clock), timer(rank, [this] { return preemptions; }), runs(std::move(runs)) {}

  double fastest_seconds(int num_runs) {
    return timer.fastest_seconds(
        [&] {
          const Run& run = runs[std::min(num_made, runs.size() - 1)];
          ++num_made;
          rank.clock().sleep_ms(run.ms);
          if (run.is_disturbed) ++preemptions;
        },
        num_runs);
  }

  FakeClock clock;
  ContextWithClock rank;
  int64_t preemptions = 0;
  RunTimer timer;
  std::vector<Run> runs;
  size_t num_made = 0;
};

TEST(RunTimer, TakesTheFastestRunButTheFirst) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{1}, {7}, {5}, {6}});
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(3), 0.005);
  EXPECT_EQ(measuring.num_made, 4U);
  EXPECT_EQ(measuring.timer.disturbed_share(), 0);
}

TEST(RunTimer, RepeatsWhatOthersDisturbedAndLeavesItOut) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{1}, {3, true}, {7}, {4, true}, {5}, {6}});
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(3), 0.005);
  EXPECT_EQ(measuring.num_made, 6U);
  EXPECT_EQ(measuring.timer.num_disturbed(), 0);
}

TEST(RunTimer, SaysWhereEveryRunWasDisturbed) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{1, true}, {9, true}, {8, true}, {9, true}});
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(2), 0.008);
  EXPECT_EQ(measuring.timer.num_disturbed(), 1);
  // Another measurement on the same machine, now quiet.
  measuring.runs = {{5}};
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(2), 0.005);
  EXPECT_EQ(measuring.timer.num_measured(), 2);
  EXPECT_DOUBLE_EQ(measuring.timer.disturbed_share(), 0.5);
}

TEST(RunTimer, WaitsForAQuietMomentNoLongerThanHalfASecond) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{100, true}});
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(2), 0.1);
  EXPECT_EQ(measuring.num_made, 7U);
}

TEST(RunTimer, DoesNotWaitForAMachineThatStaysBusy) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{1, true}});
  for (int i = 0; i < 10; ++i) measuring.fastest_seconds(2);
  measuring.num_made = 0;
  measuring.fastest_seconds(2);
  EXPECT_EQ(measuring.num_made, 3U);
  EXPECT_EQ(measuring.timer.num_disturbed(), 11);
}

TEST(RunTimer, RunsWhatTakesLongOnce) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{600}});
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(5), 0.6);
  EXPECT_EQ(measuring.num_made, 1U);
}

TEST(RunTimer, RepeatsALongRunThatIsDisturbedForTwoSeconds) {
  const auto alone = cluster::single_context(1);
  Measuring measuring(*alone, {{700, true}, {600, true}, {800, true}});
  EXPECT_DOUBLE_EQ(measuring.fastest_seconds(5), 0.6);
  EXPECT_EQ(measuring.num_made, 3U);
  Measuring very_long(*alone, {{10000, true}});
  EXPECT_DOUBLE_EQ(very_long.fastest_seconds(5), 10);
  EXPECT_EQ(very_long.num_made, 1U);
}

TEST(RunTimer, AllRanksHaveTheTimeOfTheSlowestAndNoticeWhatDisturbedOne) {
  run_ranks(2, [](cluster::Context& context) {
    const bool is_second = context.rank() == 1;
    Measuring measuring(context, {{1}, {is_second ? 8 : 2}, {is_second ? 3 : 2, is_second}, {4}});
    EXPECT_DOUBLE_EQ(measuring.fastest_seconds(2), 0.004);
    EXPECT_EQ(measuring.num_made, 4U);
    Measuring busy(context, {{1}, {2, is_second}});
    busy.fastest_seconds(2);
    EXPECT_EQ(busy.timer.num_disturbed(), 1);
  });
}

TEST(MeasureConvolutionShares, MeasuresEachKindAtEachSize) {
  const auto alone = cluster::single_context(1);
  RunTimer timer(*alone);
  const auto shares =
      measure_convolution_shares(timer, 1e9, 0, {.in_channels = {3, 8}, .out_channels = {8}, .pixels = {64, 128}});
  EXPECT_THAT(shares.by_kind,
              ElementsAre(Key("conv2d"), Key("conv2d 1x1"), Key("conv2d 1x1 strided"), Key("conv2d strided"),
                          Key("conv2d_grad_input"), Key("conv2d_grad_input 1x1"), Key("conv2d_grad_input 1x1 strided"),
                          Key("conv2d_grad_input strided"), Key("conv2d_grad_weight"), Key("conv2d_grad_weight 1x1"),
                          Key("conv2d_grad_weight 1x1 strided"), Key("conv2d_grad_weight strided")));
  for (const auto& [kind, row] : shares.by_kind) {
    ASSERT_EQ(row.size(), 4U) << kind;
    for (const double share : row) EXPECT_GT(share, 0) << kind;
  }
  EXPECT_EQ(timer.num_measured(), 48);
}

TEST(MeasureCopies, LongerPiecesAreNotSlower) {
  const auto alone = cluster::single_context(1);
  RunTimer timer(*alone);
  const std::vector<int64_t> pieces = {4, 64, 1024};
  const auto speeds = measure_copies(timer, pieces);
  EXPECT_THAT(speeds, ElementsAre(Key(4), Key(64), Key(1024)));
  EXPECT_LE(speeds.at(4), speeds.at(64));
  EXPECT_LE(speeds.at(64), speeds.at(1024));
}

TEST(MeasureRearranging, IsOfAllBytesOfTheImages) {
  const auto alone = cluster::single_context(1);
  RunTimer timer(*alone);
  const Measured measured = measure_rearranging(timer);
  EXPECT_EQ(measured.amount, 2.0 * 32 * 64 * 8 * 8 * sizeof(float));
  EXPECT_GT(measured.seconds, 0);
  EXPECT_EQ(timer.num_measured(), 2);
}

}  // namespace
}  // namespace tessera::session
