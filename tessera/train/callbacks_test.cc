// Claims about what callbacks print.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/test_folder.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

// Ten rows whose label is twice the sample, in batches of four, four and two.
data::Dataset doubles() {
  return data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 10,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           *outputs[0].as<float>() = static_cast<float>(index);
                           *outputs[1].as<float>() = static_cast<float>(2 * index);
                         })
      .batch(4);
}

// A line that is right from the start; what it prints in two epochs.
std::vector<std::string> summary(cluster::Context& context, const EpochSummaryOptions& options,
                                 const TrainOptions& train_options = {}) {
  nn::Dense network(1, 1, {.has_bias = false});
  network.parameters()[0]->data = Tensor::full({DType::kF32, {1, 1}}, 2);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.01});
  Model model(context, network, &loss, &optimizer,
              {.parallel_mode = ParallelMode::kDataParallel, .metrics = {mean_loss()}});
  std::vector<std::string> lines;
  model.train(2, doubles(), {EpochSummary(options, [&](const std::string& line) { lines.push_back(line); })},
              train_options);
  return lines;
}

TEST(EpochSummary, IsALineForEachEpochWithoutOtherCallbacks) {
  const auto context = cluster::single_context(1);
  EXPECT_THAT(summary(*context, {}),
              ElementsAre(MatchesRegex("epoch 1/2: loss 0.0000, [0-9]+[.][0-9] rows/s, [0-9]+[.][0-9] s"),
                          MatchesRegex("epoch 2/2: loss 0.0000, [0-9]+[.][0-9] rows/s, [0-9]+[.][0-9] s")));
}

TEST(EpochSummary, HasTheMetricsOfADataSetAndTheNameOfItsRows) {
  const auto context = cluster::single_context(1);
  EXPECT_THAT(summary(*context, {.row_name = "samples", .valid = doubles()}, {.dataset_sink_mode = true}),
              ElementsAre(MatchesRegex("epoch 1/2: loss 0.0000, evaluated loss 0.0000, [0-9.]+ samples/s, [0-9.]+ s"),
                          MatchesRegex("epoch 2/2: loss 0.0000, evaluated loss 0.0000, [0-9.]+ samples/s, [0-9.]+ s")));
}

class SavesStep : public Callback {
 public:
  SavesStep(int64_t step, std::string path) : step_(step), path_(std::move(path)) {}
  void step_end(RunContext& run) override {
    if (run.step == step_) run.model.save_checkpoint(path_);
  }

 private:
  int64_t step_;
  std::string path_;
};

// With the weight 0 the batches' losses are 14, 126 and 290.
TEST(EpochSummary, SaysFromWhichStepOnItIsOfAnEpochThatAnotherProcessHasBegun) {
  const TestFolder folder("epoch-summary");
  const auto context = cluster::single_context(1);
  const auto train = [&](const std::string& resume, const CallbackHandle& callback) {
    nn::Dense network(1, 1, {.has_bias = false});
    network.parameters()[0]->data = Tensor::full({DType::kF32, {1, 1}}, 0);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.0});
    Model model(*context, network, &loss, &optimizer);
    std::vector<std::string> lines;
    const EpochSummary summary({}, [&](const std::string& line) { lines.push_back(line); });
    model.train(2, doubles(), {summary, callback}, {.resume = resume, .print = [](const auto&) {}});
    return lines;
  };
  EXPECT_THAT(train("", SavesStep(2, folder.in("CKP-1_2"))),
              ElementsAre(MatchesRegex("epoch 1/2: loss 143.3333, .*"), MatchesRegex("epoch 2/2: loss 143.3333, .*")));
  EXPECT_THAT(train(folder.in("CKP-1_2.ckpt"), Callback()),
              ElementsAre(MatchesRegex("epoch 1/2 from step 3: loss 290.0000, .*"),
                          MatchesRegex("epoch 2/2: loss 143.3333, .*")));
}

TEST(EpochSummary, OfADataSetThatNoMetricMeasuresIsRefused) {
  const auto context = cluster::single_context(1);
  nn::Dense network(1, 1);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.01});
  Model model(*context, network, &loss, &optimizer);
  EXPECT_THAT([&] { model.train(1, doubles(), {EpochSummary({.valid = doubles()})}); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("EpochSummary: the model has no metrics")));
}

TEST(Model, RefusesASinkSizeThatIsNoneOrHasNoEffect) {
  const auto context = cluster::single_context(1);
  nn::Dense network(1, 1);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.01});
  Model model(*context, network, &loss, &optimizer);
  const auto refuses = [&](const TrainOptions& options, const char* words) {
    EXPECT_THAT([&] { model.train(1, doubles(), {}, options); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(words)));
  };
  refuses({.sink_size = 3}, "sink_size = 3 has no effect without dataset_sink_mode");
  refuses({.dataset_sink_mode = true, .sink_size = 0}, "sink_size must be a number of steps above 0, or -1");
  refuses({.dataset_sink_mode = true, .sink_size = -7}, "got -7");
}

// A step that takes half a second.
class Sleeper : public Callback {
 public:
  void step_begin(RunContext& run) override { run.model.context().clock().sleep_ms(500); }
};

// Three steps an epoch.
TEST(Callbacks, TellTheTimeByTheClockOfTheContext) {
  const auto one_rank = cluster::single_context(1);
  FakeClock clock;
  ContextWithClock context(*one_rank, clock);
  nn::Dense network(1, 1, {.has_bias = false});
  network.parameters()[0]->data = Tensor::full({DType::kF32, {1, 1}}, 2);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.01});
  Model model(context, network, &loss, &optimizer);
  std::vector<std::string> lines;
  const auto print = [&](const std::string& line) { lines.push_back(line); };
  model.train(1, doubles(), {Sleeper(), TimeMonitor(0, print), EpochSummary({}, print)});
  EXPECT_THAT(lines, ElementsAre("epoch time: 1500.000 ms, per step time: 500.000 ms",
                                 "epoch 1/1: loss 0.0000, 6.7 rows/s, 1.5 s"));
}

TEST(EpochSummary, IsPrintedByRank0) {
  std::vector<size_t> lines(3);
  run_ranks(3, [&](cluster::Context& context) {
    lines[static_cast<size_t>(context.rank())] = summary(context, {.valid = doubles()}).size();
  });
  EXPECT_THAT(lines, ElementsAre(2, 0, 0));
}

TEST(LossMonitor, PrintsOfAnotherModelWhoseStepsBeginAgain) {
  const auto context = cluster::single_context(1);
  std::vector<std::string> lines;
  const auto monitor = std::make_shared<LossMonitor>(3, [&](const std::string& line) { lines.push_back(line); });
  for (int model = 1; model <= 2; ++model) {
    nn::Dense network(1, 1);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.001});
    Model(*context, network, &loss, &optimizer).train(2, doubles(), {monitor});
    EXPECT_THAT(lines, ElementsAre(testing::StartsWith("epoch: 1 step: 3, loss is "),
                                   testing::StartsWith("epoch: 2 step: 3, loss is ")))
        << "model " << model;
    lines.clear();
  }
}

TEST(LossMonitor, PrintsTheFirstStepOfAnotherModelAfterASingleOne) {
  const auto context = cluster::single_context(1);
  std::vector<std::string> lines;
  const auto monitor = std::make_shared<LossMonitor>(1, [&](const std::string& line) { lines.push_back(line); });
  for (int model = 1; model <= 2; ++model) {
    nn::Dense network(1, 1);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.001});
    Model(*context, network, &loss, &optimizer).train(1, doubles().take(1), {monitor});
  }
  EXPECT_THAT(lines, ElementsAre(testing::StartsWith("epoch: 1 step: 1, loss is "),
                                 testing::StartsWith("epoch: 1 step: 1, loss is ")));
}

// Fails where training ends.
struct FailsAtEnd : Callback {
  void end(RunContext&) override { throw Error("the end is no end"); }
};

struct CountCalls : Callback {
  void step_end(RunContext&) override { ++steps; }
  void end(RunContext&) override { ++ends; }
  int steps = 0;
  int ends = 0;
};

TEST(Callbacks, ThatFailAtTheEndKeepNeitherOthersFromTheirsNorTheNextTrainingFromItsEpochs) {
  const auto context = cluster::single_context(1);
  nn::Dense network(1, 1);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.001});
  Model model(*context, network, &loss, &optimizer);
  const auto count = std::make_shared<CountCalls>();
  EXPECT_THAT(
      [&] {
        model.train(1, doubles(), {std::make_shared<FailsAtEnd>(), count});
      },
      testing::ThrowsMessage<Error>("the end is no end"));
  EXPECT_EQ(count->ends, 1);
  EXPECT_EQ(count->steps, 3);
  model.train(1, doubles(), {count});
  EXPECT_EQ(count->ends, 2);
  EXPECT_EQ(count->steps, 6);
}

// The rows that a callback is told of.
struct CountRows : Callback {
  void epoch_end(RunContext& run) override { rows.push_back(run.rows_of_epoch); }
  std::vector<int64_t> rows;
};

TEST(RunContext, CountsTheRowsOfTheGlobalBatches) {
  run_ranks(2, [](cluster::Context& context) {
    nn::Dense network(1, 1);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.001});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    const auto count = std::make_shared<CountRows>();
    model.train(2, doubles(), {count});
    EXPECT_THAT(count->rows, ElementsAre(10, 10));
  });
}

// Stops the training of one rank, or of all.
class Stop : public Callback {
 public:
  explicit Stop(int rank) : rank_(rank) {}
  void step_end(RunContext& run) override {
    if (rank_ < 0 || run.model.context().rank() == rank_) run.request_stop();
  }

 private:
  int rank_;
};

void train_and_stop(int servers, int rank_that_stops, int64_t num_epochs = 5) {
  const auto train = [&](cluster::Context& context) {
    nn::Dense network(1, 1, {.has_bias = false});
    if (servers > 0) network.set_on_servers();
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.01});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kDataParallel, .servers = servers, .metrics = {mean_loss()}});
    model.train(num_epochs, doubles(), {Stop(rank_that_stops)});
    model.eval(doubles());
  };
  run_ranks(2 + servers, train, {.timeout_ms = 600'000});
}

// Long before the deadline, and whoever it is: ranks of one group that make different calls, or of two that wait for
// each other.
TEST(Callbacks, ThatStopATrainingOnOneRankOnlyAreRefused) {
  for (const int servers : {0, 1}) {
    for (int rank = 0; rank < 2 + servers; ++rank) {
      SCOPED_TRACE(fmt::format("{} servers, rank {}", servers, rank));
      EXPECT_THAT(
          [&] { train_and_stop(servers, rank); },
          testing::ThrowsMessage<IoError>(testing::AllOf(
              testing::AnyOf(testing::HasSubstr("neither goes on"), testing::HasSubstr("makes another call than")),
              testing::HasSubstr("end of a training that a callback has stopped"))));
    }
    train_and_stop(servers, -1);
  }
}

// A batch more or less is all the same where none is left.
TEST(Callbacks, MayStopATrainingAfterItsLastStepOnOneRank) {
  const auto train = [](cluster::Context& context) {
    nn::Dense network(1, 1, {.has_bias = false});
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.01});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kDataParallel, .metrics = {mean_loss()}});
    model.train(1, doubles().take(1), {Stop(1)});
    model.eval(doubles());
  };
  EXPECT_NO_THROW(run_ranks(2, train));
}

}  // namespace
}  // namespace tessera::train
