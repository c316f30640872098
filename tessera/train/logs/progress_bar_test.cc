// Claims about what a progress bar prints.
#include "tessera/train/logs/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

// Four batches of two rows.
data::Dataset zeros() {
  return data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 8,
                         [](int64_t, std::span<const TensorView> outputs) {
                           *outputs[0].as<float>() = 0;
                           *outputs[1].as<float>() = 0;
                         })
      .batch(2);
}

// A step takes a second; the third one a minute, as one that waits for a disk.
class OneSlowStep : public Callback {
 public:
  void step_begin(RunContext& run) override { run.model.context().clock().sleep_ms(run.step == 2 ? 60'000 : 1'000); }
};

class Evaluator : public Callback {
 public:
  void epoch_end(RunContext& run) override { run.model.eval(zeros()); }
};

std::vector<std::string> printed(cluster::Context& context, const ProgressBarOptions& options) {
  nn::Dense network(1, 1, {.has_bias = false});
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.25});
  Model model(context, network, &loss, &optimizer,
              {.parallel_mode = ParallelMode::kDataParallel, .metrics = {mean_loss()}});
  std::vector<std::string> lines;
  testing::internal::CaptureStdout();  // no terminal
  model.train(
      2, zeros(),
      {OneSlowStep(), Evaluator(), ProgressBar(options, [&](const std::string& line) { lines.push_back(line); })});
  testing::internal::GetCapturedStdout();
  return lines;
}

TEST(ProgressBar, PrintsALineAfterTheFirstStepAndThenAtIntervals) {
  const auto one_rank = cluster::single_context(1);
  FakeClock clock;
  ContextWithClock context(*one_rank, clock);
  EXPECT_THAT(
      printed(context, {.row_name = "images", .interval_s = 4}),
      ElementsAre(
          MatchesRegex("epoch 1/2 .######[.]+. 1/4  loss 0.0000  rate 0.25  2.0 images/s  3 s, in all 7 s left "
                       " [0-9.]+ [KMGT]iB"),
          // 6 rows in 62 seconds; the median of 1, 1 and 60 seconds is one
          MatchesRegex("epoch 1/2 .#+[.]+. 3/4  loss 0.0000  rate 0.25  0.1 images/s  1 s, in all 5 s left  .*"),
          MatchesRegex("epoch 2/2 .#+[.]+. 3/4  loss 0.0000  rate 0.25  2.0 images/s  1 s, in all 1 s left  .*")));
}

TEST(ProgressBar, PrintsJsonWithEpochsAndEvaluations) {
  const auto one_rank = cluster::single_context(1);
  FakeClock clock;
  ContextWithClock context(*one_rank, clock);
  std::vector<std::string> moments;
  std::vector<nlohmann::json> records;
  for (const auto& line : printed(context, {.interval_s = 1000, .format = LogFormat::kJson})) {
    records.push_back(nlohmann::json::parse(line));
    moments.push_back(records.back()["kind"].get<std::string>() + " " + records.back()["step"].dump());
  }
  EXPECT_THAT(moments, ElementsAre("progress 1", "epoch 4", "evaluation 4", "epoch 8", "evaluation 8"));
  EXPECT_EQ(records[0]["epochs"], 2);
  EXPECT_EQ(records[0]["steps_per_epoch"], 4);
  EXPECT_EQ(records[0]["seconds_left"], 7.0);
  EXPECT_EQ(records[2]["metrics"]["loss"], 0.0);
}

TEST(ProgressBar, IsPrintedByRank0) {
  std::vector<size_t> lines(3);
  run_ranks(3, [&](cluster::Context& context) {
    nn::Dense network(1, 1);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.25});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    model.train(1, zeros(), {ProgressBar({.format = LogFormat::kJson}, [&](const auto&) {
                  ++lines[static_cast<size_t>(context.rank())];
                })});
  });
  EXPECT_THAT(lines, ElementsAre(testing::Ge(size_t{2}), 0, 0));
}

TEST(ProgressBar, FitsIntoATerminal) {
  TrainingRecord record{.kind = "progress", .epoch = 1, .step = 5, .loss = 0.5, .rows_per_second = 10};
  record.progress = {
      .num_epochs = 2, .step_in_epoch = 5, .steps_per_epoch = 10, .epoch_seconds_left = 65, .seconds_left = 3725};
  EXPECT_EQ(progress_text(record, "rows", 0),
            "epoch 1/2 [############............] 5/10  loss 0.5000  10.0 rows/s  1:05, in all 1:02:05 left");
  EXPECT_EQ(progress_text(record, "rows", 80), "epoch 1/2 5/10  loss 0.5000  10.0 rows/s  1:05, in all 1:02:05 left");
  EXPECT_EQ(progress_text(record, "rows", 20), "epoch 1/2 5/10  loss");
}

TEST(ProgressBar, RefusesWhatIsNoTimeOrFormat) {
  EXPECT_THROW(ProgressBar({.interval_s = -1}), InvalidArgument);
  EXPECT_THROW(ProgressBar(int64_t{-1}), InvalidArgument);
  EXPECT_THROW(parse_log_format("xml"), InvalidArgument);
}

TEST(StepTimes, ForgetOldSteps) {
  StepTimes times;
  EXPECT_EQ(times.median_seconds(), 0);
  for (int i = 0; i < 101; ++i) times.add(1, 9'000'000'000);
  times.add(0, 1);  // no step
  EXPECT_EQ(times.median_seconds(), 9);
  for (int i = 0; i < 51; ++i) times.add(10, 20'000'000'000);
  EXPECT_EQ(times.median_seconds(), 2);
}

}  // namespace
}  // namespace tessera::train
