// Claims about figures of a training as text, and how often a rank says them.
#include "tessera/cluster/report/figures_reporter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "tessera/cluster/launcher/rank_process.h"

namespace tessera::cluster {
namespace {

TEST(TrainingFigures, ComeBackAsTheyWere) {
  const TrainingFigures figures{.epoch = 2,
                                .num_epochs = 3,
                                .step = 41,
                                .steps_per_epoch = 20,
                                .loss = 0.1,
                                .learning_rate = 1e-5,
                                .rows_per_second = 1234.5,
                                .resident_bytes = int64_t{1} << 40,
                                .arena_bytes = 7,
                                .mode = "auto_parallel",
                                .plan = "found for the mesh [x=4]",
                                .checkpoint = "a \"b\"/c\\d-1_40.ckpt",
                                .checkpoint_step = 40,
                                .ended = "completed",
                                .doing = "matmul \"fc\"",
                                .waits_for = 0,
                                .waits_in = "barrier",
                                .slow_rank = 3,
                                .slow_percent = 50};
  const std::string text = print_figures(figures);
  const auto read = parse_figures(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(print_figures(*read), text);
  EXPECT_EQ(read->checkpoint, figures.checkpoint);
  EXPECT_EQ(read->learning_rate, figures.learning_rate);
  EXPECT_EQ(read->waits_for, 0);
  EXPECT_EQ(print_figures({}), "{}");
  EXPECT_EQ(parse_figures("{}")->waits_for, -1);
}

TEST(TrainingFigures, HaveNumbersThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(print_figures({.loss = kInfinity}), R"({"loss":"Infinity"})");
  EXPECT_EQ(parse_figures(R"({"loss":"-Infinity"})")->loss, -kInfinity);
  EXPECT_TRUE(std::isnan(*parse_figures(R"({"loss":"NaN"})")->loss));
}

TEST(TrainingFigures, OfAnyTextsAreALineThatIsReadAgain) {
  const std::string odd = std::string(5000, '"') + "\n\x01\xff";
  for (const std::string& text : {odd, std::string(5000, '\\'), std::string(5000, '\n'), std::string(5000, '\xff'),
                                  std::string(159, 'a') + "\xe2\x82\xac"}) {
    const TrainingFigures figures{
        .mode = text, .plan = text, .checkpoint = text, .ended = text, .doing = text, .waits_in = text};
    const std::string printed = print_figures(figures);
    EXPECT_LE(printed.size(), kMaxFiguresBytes);
    EXPECT_EQ(printed.find('\n'), std::string::npos);
    const auto read = parse_figures(printed);
    ASSERT_TRUE(read);
    EXPECT_EQ(print_figures(*read), printed);
  }
}

TEST(TrainingFigures, OfAnotherFormAreRefused) {
  for (const std::string text :
       {"", "[]", "1", "{", "{}x", R"({"step":-1})", R"({"step":1.5})", R"({"step":"1"})", R"({"loss":"big"})",
        R"({"loss":null})", R"({"loss":1e999})", R"({"unknown":1})", R"({"mode":1})", R"({"slow_percent":101})",
        R"({"waits_for":-1})", R"({"step":18446744073709551615})", "{\"mode\":\"\xff\"}", "{\"mode\":\"\\n\"}",
        "{\n}"}) {
    EXPECT_FALSE(parse_figures(text)) << text;
  }
  EXPECT_FALSE(parse_figures("{\"mode\":\"" + std::string(33, 'x') + "\"}"));
  EXPECT_FALSE(parse_figures(std::string(kMaxFiguresBytes, ' ') + "{}"));
}

struct Reporter : testing::Test {
  Reporter() {
    std::tie(read_end, write_end) = make_pipe();
    for (const Socket* end : {&read_end, &write_end}) fcntl(end->fd(), F_SETFL, O_NONBLOCK);
  }
  std::string heard() const {
    char bytes[4096];
    const ssize_t count = read(read_end.fd(), bytes, sizeof(bytes));
    return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : "";
  }
  Socket read_end, write_end;
  FakeClock clock;
};

TEST_F(Reporter, SaysTheNewestFiguresAtMostOnceASecond) {
  FiguresReporter reporter(write_end.fd(), 3, clock);
  reporter.report({.epoch = 1, .step = 1});
  EXPECT_EQ(heard(), "3 {\"epoch\":1,\"step\":1}\n");
  for (int64_t step = 2; step < 9; ++step) {
    clock.sleep_ms(100);
    reporter.report({.epoch = 1, .step = step});
  }
  EXPECT_EQ(heard(), "");
  EXPECT_EQ(reporter.latest(), "{\"epoch\":1,\"step\":8}");
  clock.sleep_ms(300);
  RankGlance glance;
  glance.progress.phase = "the callbacks";
  reporter.look(glance);
  EXPECT_EQ(heard(), "3 {\"epoch\":1,\"step\":8,\"doing\":\"the callbacks\"}\n");
}

TEST_F(Reporter, SaysNowAndThenThatTheRankRuns) {
  FiguresReporter reporter(write_end.fd(), 0, clock);
  reporter.look({});
  EXPECT_EQ(heard(), "0 {}\n");
  clock.sleep_ms(4000);
  reporter.look({});
  EXPECT_EQ(heard(), "");
  clock.sleep_ms(1000);
  reporter.look({});
  EXPECT_EQ(heard(), "0 {}\n");
}

TEST_F(Reporter, SaysAnEndAtOnce) {
  FiguresReporter reporter(write_end.fd(), 0, clock);
  reporter.report({.step = 1});
  reporter.report({.step = 2, .ended = "completed"});
  EXPECT_EQ(heard(), "0 {\"step\":1}\n0 {\"step\":2,\"ended\":\"completed\"}\n");
}

TEST_F(Reporter, NeverWaitsForALauncherThatDoesNotRead) {
  FiguresReporter reporter(write_end.fd(), 0, clock);
  for (int64_t step = 1; step <= 100000; ++step) {
    clock.sleep_ms(1000);
    reporter.report({.step = step});
  }
  EXPECT_TRUE(heard().starts_with("0 {\"step\":1}\n"));
}

}  // namespace
}  // namespace tessera::cluster
