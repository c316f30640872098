// Claims about what a job's board says of it, and how much it keeps.
#include "tessera/cluster/dashboard/job_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/strings.h"
#include "tessera/cluster/dashboard/launcher_dashboard.h"

namespace tessera::cluster {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct Board : testing::Test {
  json state() const { return json::parse(board.state_json()); }
  FakeClock clock;
  JobBoard board{"./train --epochs 2", clock};
};

TrainingFigures figures_at(int64_t step, double loss) {
  return {.epoch = 1, .num_epochs = 2, .step = step, .loss = loss, .resident_bytes = 1 << 20, .mode = "data_parallel"};
}

TEST_F(Board, IsWholeBeforeThereIsAnyRank) {
  const json said = state();
  EXPECT_EQ(said["version"], 1);
  EXPECT_EQ(said["program"], "./train --epochs 2");
  EXPECT_EQ(said["state"], "waiting");
  EXPECT_EQ(said["step"], 0);
  EXPECT_TRUE(said["loss"].is_null());
  EXPECT_TRUE(said["slowest"].is_null());
  for (const char* list : {"ranks", "losses", "speeds", "learning_rates", "checkpoints", "log"}) {
    EXPECT_EQ(said[list], json::array()) << list;
  }
}

TEST_F(Board, SaysWhatEachRankDoes) {
  board.set_num_ranks(6);
  board.set_job(BoardJobState::kRunning);
  for (int rank = 0; rank < 5; ++rank) board.set_rank(rank, BoardRankState::kStarting);
  board.take(0, {});
  board.take(1, figures_at(3, 2.5));
  TrainingFigures waits = figures_at(3, 2.5);
  waits.waits_for = 1;
  waits.waits_in = "all_reduce \"fc\"";
  board.take(2, waits);
  board.set_rank(3, BoardRankState::kFailed, "exit code 7");
  const json said = state();
  EXPECT_EQ(said["ranks"][0]["state"], "running");
  EXPECT_EQ(said["ranks"][1]["state"], "training");
  EXPECT_EQ(said["ranks"][2]["state"], "waiting");
  EXPECT_EQ(said["ranks"][2]["waits_for"], 1);
  EXPECT_EQ(said["ranks"][2]["waits_in"], "all_reduce \"fc\"");
  EXPECT_EQ(said["ranks"][3]["state"], "failed");
  EXPECT_EQ(said["ranks"][3]["detail"], "exit code 7");
  EXPECT_EQ(said["ranks"][4]["state"], "starting");
  EXPECT_EQ(said["ranks"][5]["state"], "expected");
  EXPECT_EQ(said["states"]["training"], 1);
  EXPECT_EQ(said["loss"], 2.5);
  EXPECT_EQ(said["mode"], "data_parallel");
}

TEST_F(Board, WritesAFloatInItsShortestDecimals) {
  board.set_num_ranks(1);
  TrainingFigures figures = figures_at(3, 0.1F);
  figures.learning_rate = 0.01F;
  board.take(0, figures);
  const json said = state();
  EXPECT_EQ(said["learning_rate"], 0.01);
  EXPECT_EQ(said["ranks"][0]["learning_rate"], 0.01);
  EXPECT_EQ(said["learning_rates"], (json::array({json::array({3, 0.01})})));
  EXPECT_EQ(said["loss"], 0.1);
  EXPECT_THAT(board.metrics_text(), HasSubstr("tessera_learning_rate{rank=\"0\"} 0.01\n"));
  // A number of more digits stays.
  board.take(0, figures_at(4, 1.0 / 3));
  EXPECT_EQ(state()["loss"], 1.0 / 3);
}

TEST_F(Board, NamesARankSilentThatSaysNothingForLong) {
  board.set_num_ranks(1);
  board.take(0, figures_at(1, 2));
  clock.sleep_ms(14000);
  EXPECT_EQ(state()["ranks"][0]["state"], "training");
  clock.sleep_ms(2000);
  EXPECT_EQ(state()["ranks"][0]["state"], "silent");
  board.set_job(BoardJobState::kCompleted);
  EXPECT_EQ(state()["ranks"][0]["state"], "training");
}

TEST_F(Board, NamesTheSlowestRankByWhoWaitsMost) {
  board.set_num_ranks(3);
  TrainingFigures some = figures_at(1, 2);
  some.slow_rank = 2;
  some.slow_percent = 30;
  board.take(0, some);
  some.slow_percent = 60;
  board.take(1, some);
  EXPECT_EQ(state()["slowest"], (json{{"rank", 2}, {"percent", 60}, {"waiting", 0}}));
}

TEST_F(Board, NamesTheRankThatOthersWaitForNowThoughNoShareOfTimeIsKnown) {
  board.set_num_ranks(4);
  board.set_job(BoardJobState::kRunning);
  for (int rank = 0; rank < 4; ++rank) board.take(rank, figures_at(1, 2));
  EXPECT_TRUE(state()["slowest"].is_null());
  TrainingFigures waits = figures_at(1, 2);
  waits.waits_for = 2;
  for (const int rank : {0, 1, 3}) board.take(rank, waits);
  EXPECT_EQ(state()["slowest"], (json{{"rank", 2}, {"percent", nullptr}, {"waiting", 3}}));
  // A wait that goes on says more than one that is over.
  waits.slow_rank = 1;
  waits.slow_percent = 40;
  board.take(0, waits);
  EXPECT_EQ(state()["slowest"], (json{{"rank", 2}, {"percent", nullptr}, {"waiting", 3}}));
  waits.slow_rank = 2;
  board.take(0, waits);
  EXPECT_EQ(state()["slowest"], (json{{"rank", 2}, {"percent", 40}, {"waiting", 3}}));
}

TEST_F(Board, NamesTheRankAtTheEndOfAChainOfWaits) {
  board.set_num_ranks(5);
  board.set_job(BoardJobState::kRunning);
  TrainingFigures waits = figures_at(1, 2);
  const int awaited[] = {1, 2, -1, 1, 0};
  for (int rank = 0; rank < 5; ++rank) {
    waits.waits_for = awaited[rank];
    board.take(rank, waits);
  }
  EXPECT_EQ(state()["slowest"], (json{{"rank", 2}, {"percent", nullptr}, {"waiting", 4}}));
  // Ranks that wait for each other have none at their end, and one that the job does not have is none.
  waits.waits_for = 0;
  board.take(2, waits);
  EXPECT_TRUE(state()["slowest"].is_null());
  waits.waits_for = 9;
  board.take(2, waits);
  EXPECT_EQ(state()["slowest"]["rank"], 2);
}

TEST_F(Board, OfAJobThatHasEndedSaysOfNoRankThatItWaits) {
  board.set_num_ranks(2);
  TrainingFigures waits = figures_at(1, 2);
  waits.waits_for = 1;
  waits.waits_in = "all_reduce \"fc\"";
  waits.doing = "matmul";
  board.take(0, waits);
  board.set_rank(0, BoardRankState::kEnded);
  EXPECT_TRUE(state()["slowest"].is_null());
  for (const char* member : {"waits_for", "waits_in", "doing"}) {
    EXPECT_TRUE(state()["ranks"][0][member].is_null()) << member;
  }
}

TEST_F(Board, CountsRestarts) {
  board.set_num_ranks(1);
  board.set_rank(0, BoardRankState::kStarting);
  EXPECT_EQ(state()["ranks"][0]["restarts"], 0);
  board.set_rank(0, BoardRankState::kLost, "killed by SIGKILL");
  board.set_rank(0, BoardRankState::kStarting);
  EXPECT_EQ(state()["ranks"][0]["restarts"], 1);
}

TEST_F(Board, HasOneCurveForEachRank) {
  board.set_num_ranks(2);
  for (int64_t step = 1; step <= 3; ++step) {
    board.take(0, figures_at(step, 1.0 / static_cast<double>(step)));
    board.take(1, figures_at(step, std::numeric_limits<double>::quiet_NaN()));
  }
  const json said = state();
  EXPECT_EQ(said["losses"][0]["points"].size(), 3U);
  EXPECT_EQ(said["losses"][0]["points"][1], (json{2, 0.5}));
  EXPECT_EQ(said["losses"][1]["points"][2], (json{3, "NaN"}));
}

TEST_F(Board, ForgetsTheStepsThatATrainingGoesBackBehind) {
  board.set_num_ranks(1);
  for (int64_t step = 1; step <= 5; ++step) board.take(0, figures_at(step, 5));
  board.take(0, figures_at(3, 1));
  EXPECT_EQ(state()["losses"][0]["points"], (json{{1, 5.0}, {2, 5.0}, {3, 1.0}}));
}

TEST_F(Board, ListsEachCheckpointOnce) {
  board.set_num_ranks(2);
  TrainingFigures saved = figures_at(4, 1);
  saved.checkpoint = "run/job-1_4.ckpt";
  saved.checkpoint_step = 4;
  board.take(0, saved);
  board.take(1, saved);
  const json said = state();
  ASSERT_EQ(said["checkpoints"].size(), 1U);
  EXPECT_EQ(said["checkpoints"][0]["step"], 4);
  EXPECT_EQ(said["checkpoints"][0]["path"], "run/job-1_4.ckpt");
}

TEST_F(Board, KeepsABoundedPartOfWhatIsSaid) {
  board.set_num_ranks(20000);
  for (int rank = 0; rank < 20000; ++rank) board.take(rank, figures_at(rank + 1, 1));
  for (int64_t step = 1; step <= 10000; ++step) board.take(0, figures_at(step, 1));
  for (int i = 0; i < 5000; ++i) board.add_line(0, std::string(100000, 'x'));
  for (int i = 1; i <= 1000; ++i) {
    TrainingFigures saved = figures_at(i, 1);
    saved.checkpoint = "a.ckpt";
    saved.checkpoint_step = i;
    board.take(1, saved);
  }
  const json said = state();
  EXPECT_EQ(said["num_ranks"], 20000);
  EXPECT_EQ(said["ranks"].size(), static_cast<size_t>(JobBoard::kMostRanks));
  EXPECT_EQ(said["ranks_left_out"], 20000 - JobBoard::kMostRanks);
  EXPECT_EQ(said["losses"].size(), static_cast<size_t>(JobBoard::kMostCurves));
  EXPECT_LE(said["losses"][0]["points"].size(), JobBoard::kMostPoints / JobBoard::kMostCurves + 1);
  EXPECT_EQ(said["losses"][0]["points"].back()[0], 10000);
  EXPECT_EQ(said["log"].size(), JobBoard::kMostLines);
  EXPECT_EQ(said["log"][0]["text"].get<std::string>().size(), JobBoard::kMaxLine);
  EXPECT_EQ(said["checkpoints"].size(), JobBoard::kMostCheckpoints);
  EXPECT_LT(board.state_json().size(), size_t{2} << 20);
}

TEST_F(Board, PassesOverRanksThatTheJobDoesNotHave) {
  board.set_num_ranks(1);
  board.take(1, figures_at(1, 1));
  board.take(-1, figures_at(1, 1));
  board.set_rank(7, BoardRankState::kFailed);
  EXPECT_EQ(state()["ranks"].size(), 1U);
  EXPECT_EQ(state()["step"], 0);
}

TEST_F(Board, SaysTextOfOthersAsTextOfUtf8) {
  board.set_num_ranks(1);
  board.add_line(0, "</script><img src=x onerror=alert(1)> \"quoted\" \x1b[31m \xff\xe2\x80\xae");
  board.set_rank(0, BoardRankState::kFailed, "\x01\xff");
  const std::string text = board.state_json();
  EXPECT_THAT(json::parse(text)["log"][0]["text"].get<std::string>(),
              testing::StartsWith("</script><img src=x onerror=alert(1)> \"quoted\" \\x1b[31m \\xff"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(json::parse(text)["ranks"][0]["detail"], "\\x01\\xff");
}

TEST_F(Board, IsOpenMetricsTextToo) {
  JobBoard odd("./a \"b\\c\"\nd", clock);
  odd.set_num_ranks(2);
  odd.set_job(BoardJobState::kRunning);
  odd.take(0, figures_at(7, 0.5));
  odd.take(1, figures_at(7, std::numeric_limits<double>::infinity()));
  const std::string text = odd.metrics_text();
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tessera_job info\n"));
  EXPECT_THAT(text, HasSubstr(R"(tessera_job_info{program="./a \"b\\c\"\nd",mode="data_parallel"} 1.0)"));
  EXPECT_THAT(text, HasSubstr("# UNIT tessera_resident_bytes bytes\n"));
  EXPECT_THAT(text, HasSubstr("tessera_loss{rank=\"0\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("tessera_loss{rank=\"1\"} +Inf\n"));
  EXPECT_THAT(text, HasSubstr("tessera_step{rank=\"0\"} 7.0\n"));
  EXPECT_THAT(text, HasSubstr("tessera_job_state{state=\"running\"} 1.0\n"));
  EXPECT_THAT(text, HasSubstr("tessera_ranks_left_out 0.0\n"));
  // Every line is a comment or a sample: a name, perhaps labels, and one number.
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with("# ")) continue;
    EXPECT_TRUE(line.starts_with("tessera_")) << line;
    EXPECT_NE(line.rfind(' '), std::string_view::npos) << line;
  }
}

TEST(FigureCurve, KeepsTheNewestPointAndABoundedNumberOfOthers) {
  FigureCurve curve(8);
  for (int64_t step = 1; step <= 1000; ++step) {
    curve.add(step, static_cast<double>(step));
    const auto points = curve.points();
    ASSERT_LE(points.size(), 9U);
    ASSERT_EQ(points.front().first, 1);
    ASSERT_EQ(points.back(), (std::pair<int64_t, double>(step, static_cast<double>(step))));
    for (size_t i = 1; i < points.size(); ++i) ASSERT_LT(points[i - 1].first, points[i].first);
  }
}

TEST_F(Board, ReadsTheLinesOfRanksAndNoOthers) {
  board.set_num_ranks(2);
  EXPECT_TRUE(take_figures_line(board, "1 {\"step\":3,\"loss\":0.5}"));
  EXPECT_EQ(state()["ranks"][1]["step"], 3);
  for (const char* line : {"", " {}", "x {}", "1", "1 ", "1 [", "1 {\"step\":-1}", "-1 {}", "12345678 {}", "1 {} {}"}) {
    EXPECT_FALSE(take_figures_line(board, line)) << line;
  }
}

}  // namespace
}  // namespace tessera::cluster
