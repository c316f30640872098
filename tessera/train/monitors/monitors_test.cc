// Claims about callbacks that watch a number from epoch to epoch.
#include "tessera/train/monitors/monitors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Ten rows whose label is twice the sample, in batches of four, four and two.
data::Dataset doubles() {
  return data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 10,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           *outputs[0].as<float>() = static_cast<float>(index);
                           *outputs[1].as<float>() = static_cast<float>(2 * index);
                         })
      .batch(4);
}

// After each epoch the loss over one row (1, 0) becomes what the plan says: the weight's square. It stands in front of
// what watches, and evaluates.
class SetsLoss : public Callback {
 public:
  explicit SetsLoss(std::vector<double> losses) : losses_(std::move(losses)) {}
  void epoch_end(RunContext& run) override {
    const double weight = std::sqrt(losses_.at(static_cast<size_t>(run.epoch) - 1));
    run.model.set_value("weight", Tensor::full({DType::kF32, {1, 1}}, weight));
    run.model.eval(data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 1,
                                   [](int64_t, std::span<const TensorView> outputs) {
                                     *outputs[0].as<float>() = 1;
                                     *outputs[1].as<float>() = 0;
                                   })
                       .batch(1));
    // No step could be made of it.
    if (std::isnan(weight)) run.model.set_value("weight", Tensor::zeros({DType::kF32, {1, 1}}));
  }

 private:
  std::vector<double> losses_;
};

struct CountEpochs : Callback {
  void epoch_end(RunContext&) override { ++epochs; }
  int64_t epochs = 0;
};

// A model of one weight, which nothing moves but SetsLoss.
struct Job {
  explicit Job(cluster::Context& context, std::vector<std::shared_ptr<Metric>> metrics = {mean_loss()}, double rate = 0)
      : optimizer({.learning_rate = rate}),
        model(context, network, &loss, &optimizer,
              {.parallel_mode = ParallelMode::kDataParallel, .metrics = std::move(metrics)}) {}
  nn::Dense network{1, 1, {.has_bias = false}};
  nn::MSELoss loss;
  nn::SGD optimizer;
  Model model;
  double weight() { return model.value("weight").item(); }
};

// On one rank, and on three, of which the last one has no row of the last batch.
void on_ranks(const std::function<void(cluster::Context&)>& f) {
  for (const int ranks : {1, 3}) run_ranks(ranks, f);
}

TEST(EarlyStopping, EndsAfterEpochsThatAreNotBetter) {
  on_ranks([](cluster::Context& context) {
    Job job(context);
    const auto stopping = std::make_shared<EarlyStopping>(MonitorOptions{}, 2);
    const auto count = std::make_shared<CountEpochs>();
    job.model.train(9, doubles(), {SetsLoss({4, 1, 1, 0.25, 1, 0.25, 0, 0, 0}), stopping, count});
    EXPECT_EQ(count->epochs, 6);
    EXPECT_EQ(stopping->stopped_epoch(), 6);
    EXPECT_EQ(stopping->best_epoch(), 4);
    EXPECT_EQ(stopping->best(), 0.25);
  });
}

// What rank 0 of `ranks` says of a training of so many epochs, one for each loss.
std::string log_of_stopping(int ranks, const std::vector<double>& losses, int64_t patience) {
  testing::internal::CaptureStderr();
  run_ranks(ranks, [&](cluster::Context& context) {
    Job job(context);
    job.model.train(static_cast<int64_t>(losses.size()), doubles(),
                    {SetsLoss(losses), EarlyStopping(MonitorOptions{}, patience)});
  });
  return testing::internal::GetCapturedStderr();
}

TEST(EarlyStopping, SaysOnceWhyTheTrainingEnds) {
  for (const int ranks : {1, 3}) {
    const std::string log = log_of_stopping(ranks, {4, 0.25, 1, 1, 1, 1}, 3);
    const std::string word =
        "EarlyStopping: the training ends after epoch 5 of 6: loss has not been better than 0.25, that of epoch 2, for "
        "3 epochs\n";
    EXPECT_THAT(log, HasSubstr(word));
    EXPECT_EQ(log.find("EarlyStopping"), log.rfind("EarlyStopping")) << log;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(log_of_stopping(1, {nan, nan, 1}, 2),
              HasSubstr("ends after epoch 2 of 3: loss has not been a finite number for 2 epochs\n"));
}

TEST(EarlyStopping, SaysNothingOfATrainingThatItDoesNotShorten) {
  EXPECT_THAT(log_of_stopping(1, {1, 4, 4}, 2), testing::Not(HasSubstr("EarlyStopping")));
  EXPECT_THAT(log_of_stopping(1, {4, 1, 0.25}, 1), testing::Not(HasSubstr("EarlyStopping")));
}

TEST(EarlyStopping, TakesOnlyWhatIsBetterByMoreThanMinDelta) {
  on_ranks([](cluster::Context& context) {
    Job job(context);
    const auto stopping = std::make_shared<EarlyStopping>(MonitorOptions{.min_delta = 1}, 1);
    job.model.train(4, doubles(), {SetsLoss({4, 2.25, 1.44, 0}), stopping});
    EXPECT_EQ(stopping->stopped_epoch(), 3);
  });
}

TEST(EarlyStopping, RestoresTheBestParametersStoppedOrNot) {
  on_ranks([](cluster::Context& context) {
    for (const int64_t epochs : {5, 3}) {
      Job job(context);
      job.model.train(epochs, doubles(), {SetsLoss({4, 1, 4, 9, 9}), EarlyStopping({}, 2, /*restore_best=*/true)});
      EXPECT_EQ(job.weight(), 1) << epochs;
    }
    Job job(context);
    job.model.train(5, doubles(), {SetsLoss({4, 1, 4, 9, 9}), EarlyStopping({}, 2)});
    EXPECT_EQ(job.weight(), 3) << "without restore_best it is that of the last epoch";
  });
}

TEST(EarlyStopping, RestoresWhatIsSplitOverRanks) {
  run_ranks(3, [](cluster::Context& context) {
    nn::Dense network(4, 5);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kDataParallel,
                 .parallel_optimizer = true,
                 .parallel_optimizer_threshold = 0,
                 .metrics = {mean_loss()}});
    std::vector<double> first;
    struct Keep : Callback {
      explicit Keep(std::vector<double>& into) : into(into) {}
      void epoch_end(RunContext& run) override {
        if (run.epoch == 1) into = run.model.value("weight").to_doubles();
      }
      std::vector<double>& into;
    };
    // All labels are 100 times as large as what is evaluated: after the first epoch the loss rises.
    const auto rows = [](float scale) {
      return data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {5}}}}, 10,
                             [scale](int64_t index, std::span<const TensorView> outputs) {
                               for (int i = 0; i < 4; ++i)
                                 outputs[0].as<float>()[i] = static_cast<float>(index + i) / 9;
                               for (int i = 0; i < 5; ++i) outputs[1].as<float>()[i] = scale * static_cast<float>(i);
                             })
          .batch(4);
    };
    model.train(4, rows(100), {Keep(first), EarlyStopping({.valid = rows(0)}, 1, /*restore_best=*/true)});
    EXPECT_EQ(model.value("weight").to_doubles(), first);
    EXPECT_EQ(model.step(), 6) << "two epochs";
  });
}

TEST(EarlyStopping, ValuesThatAreNoNumberAreNeverBetter) {
  const auto context = cluster::single_context(1);
  Job job(*context);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto stopping = std::make_shared<EarlyStopping>(MonitorOptions{}, 2);
  job.model.train(4, doubles(), {SetsLoss({nan, 1, nan, nan}), stopping});
  EXPECT_EQ(stopping->stopped_epoch(), 4);
  EXPECT_EQ(stopping->best_epoch(), 2);
}

TEST(EarlyStopping, WatchesTheLossOfTheEpochsSteps) {
  on_ranks([](cluster::Context& context) {
    Job job(context, {});
    const auto stopping = std::make_shared<EarlyStopping>(MonitorOptions{.monitor = "train_loss"}, 2);
    job.model.train(5, doubles(), {stopping});  // with a rate of 0 it never changes
    EXPECT_EQ(stopping->stopped_epoch(), 3);
    EXPECT_EQ(stopping->best_epoch(), 1);
  });
}

TEST(EarlyStopping, SaysWhatItCannotWatch) {
  const auto context = cluster::single_context(1);
  Job job(*context);
  EXPECT_THAT([&] { job.model.train(1, doubles(), {EarlyStopping({.monitor = "accuracy"})}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("EarlyStopping: the model has no metric \"accuracy\"; there are "
                                                       "loss, train_loss")));
  EXPECT_THAT([&] { job.model.train(1, doubles(), {EarlyStopping()}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("watches loss, but nothing was evaluated after epoch 1")));
  EXPECT_THAT([] { EarlyStopping({.monitor = "my_number"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("give mode \"min\" or \"max\"")));
  EXPECT_THAT([] { EarlyStopping({.monitor = "val_loss"}); },
              ThrowsMessage<InvalidArgument>("EarlyStopping: \"val_loss\" is called \"loss\" here, of the data set "
                                             "that `valid` gives"));
  EXPECT_THROW(EarlyStopping({.mode = "least"}), InvalidArgument);
  EXPECT_THROW(EarlyStopping({.min_delta = -1}), InvalidArgument);
  EXPECT_THROW(EarlyStopping({}, 0), InvalidArgument);
}

class BestCheckpoints : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-best-{}", ::getpid());
};

TEST_F(BestCheckpoints, HoldTheBestEpoch) {
  on_ranks([&](cluster::Context& context) {
    Job job(context);
    const auto best = std::make_shared<BestCheckpoint>(in("best"));
    job.model.train(4, doubles(), {SetsLoss({4, 1, 9, 1}), best});
    EXPECT_EQ(best->best(), 1);
    EXPECT_EQ(best->path(), in("best.ckpt"));
    Job other(context);
    EXPECT_EQ(other.model.load_checkpoint(best->path()).step, 6);
    EXPECT_EQ(other.weight(), 1);
  });
}

TEST_F(BestCheckpoints, AreNotReplacedByWorseOnesOfATrainingThatGoesOn) {
  on_ranks([&](cluster::Context& context) {
    {
      Job job(context);
      job.model.train(2, doubles(), {SetsLoss({4, 1}), BestCheckpoint(in("best"))});
    }
    const auto weight_after = [&](std::vector<double> losses) {
      Job job(context);
      job.model.load_checkpoint(in("best.ckpt"));
      job.model.train(static_cast<int64_t>(losses.size()), doubles(), {SetsLoss(losses), BestCheckpoint(in("best"))});
      Job other(context);
      other.model.load_parameters(in("best.ckpt"));
      return other.weight();
    };
    EXPECT_EQ(weight_after({4, 1, 2.25}), 1);
    EXPECT_EQ(weight_after({4, 1, 0.25}), 0.5);
    // Another training has nothing to do with what is there.
    Job another(context);
    another.model.train(1, doubles(), {SetsLoss({9}), BestCheckpoint(in("best"))});
    Job other(context);
    other.model.load_parameters(in("best.ckpt"));
    EXPECT_EQ(other.weight(), 3);
  });
}

// The names of the files NAME.ckpt in a folder, sorted.
std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".ckpt") names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

double weight_in(cluster::Context& context, const std::string& path) {
  Job job(context);
  job.model.load_checkpoint(path);
  return job.weight();
}

// A folder for each number of ranks.
std::string folder_for(const std::string& folder, const cluster::Context& context) {
  return fmt::format("{}/of_{}", folder, context.size());
}

TEST_F(BestCheckpoints, KeepTheKBestOfAnyNumberOfRanks) {
  for (const bool integrated : {true, false}) {
    on_ranks([&](cluster::Context& context) {
      Job job(context);
      const auto folder = folder_for(in(integrated ? "whole" : "slices"), context);
      const auto best = std::make_shared<BestCheckpoint>(
          folder + "/best", MonitorOptions{}, BestCheckpointOptions{.save_top_k = 2, .integrated_save = integrated});
      EXPECT_EQ(best->path(), "");
      job.model.train(6, doubles(), {SetsLoss({4, 9, 1, 2.25, 0.25, 4}), best});
      EXPECT_THAT(best->paths(), ElementsAre(folder + "/best-5_3.ckpt", folder + "/best-3_3.ckpt"));
      EXPECT_THAT(best->scores(), ElementsAre(0.25, 1));
      EXPECT_EQ(best->best(), 0.25);
      EXPECT_EQ(best->path(), folder + "/best-5_3.ckpt");
      EXPECT_THAT(checkpoints_in(folder), ElementsAre("best-3_3.ckpt", "best-5_3.ckpt"));
      EXPECT_EQ(weight_in(context, folder + "/best-5_3.ckpt"), 0.5);
      EXPECT_EQ(weight_in(context, folder + "/best-3_3.ckpt"), 1);
    });
  }
}

TEST_F(BestCheckpoints, OfEqualOnesTheEarlierStayAndWhatIsNotFiniteIsNone) {
  on_ranks([&](cluster::Context& context) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Job job(context);
    const auto folder = folder_for(in("ties"), context);
    const auto best =
        std::make_shared<BestCheckpoint>(folder + "/best", MonitorOptions{}, BestCheckpointOptions{.save_top_k = 3});
    job.model.train(7, doubles(), {SetsLoss({nan, 1, 1, nan, 1, 1, 0.25}), best});
    EXPECT_THAT(best->scores(), ElementsAre(0.25, 1, 1));
    EXPECT_THAT(checkpoints_in(folder), ElementsAre("best-2_3.ckpt", "best-3_3.ckpt", "best-7_3.ckpt"));
  });
}

TEST_F(BestCheckpoints, ATrainingThatGoesOnHasTheSameBestOnes) {
  on_ranks([&](cluster::Context& context) {
    const auto folder = folder_for(in("on"), context);
    const auto newest = folder_for(in("newest"), context);
    const auto train = [&](const std::vector<double>& losses) {
      Job job(context);
      if (losses.size() > 3) job.model.load_checkpoint(newest);
      const auto best =
          std::make_shared<BestCheckpoint>(folder + "/best", MonitorOptions{}, BestCheckpointOptions{.save_top_k = 2});
      job.model.train(static_cast<int64_t>(losses.size()), doubles(),
                      {SetsLoss(losses), best, ModelCheckpoint("CKP", newest, {.save_checkpoint_steps = 3})});
      return best->scores();
    };
    EXPECT_THAT(train({1, 4, 2.25}), ElementsAre(1, 2.25));
    // The fourth epoch is worse than both; the fifth is better than one of them.
    EXPECT_THAT(train({0, 0, 0, 9, 0.25}), ElementsAre(0.25, 1));
    EXPECT_THAT(checkpoints_in(folder), ElementsAre("best-1_3.ckpt", "best_1-5_3.ckpt"));
    // Another training counts its own, and leaves these alone.
    EXPECT_THAT(train({9, 4}), ElementsAre(4, 9));
    EXPECT_THAT(checkpoints_in(folder),
                ElementsAre("best-1_3.ckpt", "best_1-5_3.ckpt", "best_2-1_3.ckpt", "best_2-2_3.ckpt"));
  });
}

TEST_F(BestCheckpoints, AnEpochThatIsTrainedAgainTakesItsOwnPlace) {
  on_ranks([&](cluster::Context& context) {
    const auto folder = folder_for(in("again"), context);
    const auto train = [&](const std::string& from, const std::vector<double>& losses) {
      Job job(context);
      if (!from.empty()) job.model.load_checkpoint(from);
      const auto best =
          std::make_shared<BestCheckpoint>(folder + "/best", MonitorOptions{}, BestCheckpointOptions{.save_top_k = 2});
      job.model.train(static_cast<int64_t>(losses.size()), doubles(), {SetsLoss(losses), best});
      return best->scores();
    };
    EXPECT_THAT(train("", {1, 4}), ElementsAre(1, 4));
    // From after the first epoch: the second one is worse now than it was.
    EXPECT_THAT(train(folder + "/best-1_3.ckpt", {0, 9}), ElementsAre(1, 9));
    EXPECT_THAT(checkpoints_in(folder), ElementsAre("best-1_3.ckpt", "best_1-2_3.ckpt"));
  });
}

TEST_F(BestCheckpoints, StandBesideTheNewestOfOneDirectory) {
  on_ranks([&](cluster::Context& context) {
    Job job(context);
    const auto folder = folder_for(in("both"), context);
    job.model.train(5, doubles(),
                    {SetsLoss({1, 4, 9, 4, 9}), BestCheckpoint(folder + "/best", {}, {.save_top_k = 2}),
                     ModelCheckpoint("CKP", folder, {.save_checkpoint_steps = 3, .keep_checkpoint_max = 2})});
    EXPECT_THAT(checkpoints_in(folder), ElementsAre("CKP-4_3.ckpt", "CKP-5_3.ckpt", "best-1_3.ckpt", "best-2_3.ckpt"));
  });
}

TEST_F(BestCheckpoints, AreRefusedUnderThePrefixOfTheNewest) {
  const auto context = cluster::single_context(1);
  Job job(*context);
  for (const auto* prefix : {"CKP", "CKP_3"}) {
    EXPECT_THAT(
        [&] {
          job.model.train(1, doubles(),
                          {SetsLoss({1}), ModelCheckpoint("CKP", in("one")),
                           BestCheckpoint(in("one/") + prefix, {}, {.save_top_k = 2})});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("of which one keeps the best")));
  }
  EXPECT_THAT([&] { BestCheckpoint("best", {}, {.save_top_k = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("save_top_k must be at least 1, got 0")));
}

TEST_F(BestCheckpoints, RestoreTheBestParametersInTheEnd) {
  for (const int64_t k : {1, 3}) {
    on_ranks([&](cluster::Context& context) {
      Job job(context);
      const auto folder = folder_for(in(fmt::format("restored_{}", k)), context);
      job.model.train(
          4, doubles(),
          {SetsLoss({4, 1, 9, 2.25}), BestCheckpoint(folder + "/best", {}, {.save_top_k = k, .restore_best = true})});
      EXPECT_EQ(job.weight(), 1);
      EXPECT_EQ(job.model.step(), 12) << "where the training stands does not change";
    });
  }
}

TEST_F(BestCheckpoints, RanksWithDirectoriesOfTheirOwnCountWhatAllHave) {
  run_ranks(2, [&](cluster::Context& context) {
    const auto folder = in(fmt::format("own_{}", context.rank()));
    const auto train = [&](const std::vector<double>& losses) {
      Job job(context);
      if (losses.size() > 2) job.model.load_checkpoint(folder + "/best-2_3.ckpt");
      const auto best =
          std::make_shared<BestCheckpoint>(folder + "/best", MonitorOptions{}, BestCheckpointOptions{.save_top_k = 2});
      job.model.train(static_cast<int64_t>(losses.size()), doubles(), {SetsLoss(losses), best});
      return best->scores();
    };
    EXPECT_THAT(train({1, 4}), ElementsAre(1, 4));
    context.world().barrier("test");
    if (context.rank() == 1) std::filesystem::remove(folder + "/best-1_3.ckpt");
    context.world().barrier("test");
    EXPECT_THAT(train({0, 0, 9}), ElementsAre(4, 9));
    EXPECT_THAT(checkpoints_in(folder), ElementsAre("best-2_3.ckpt", "best_1-3_3.ckpt"))
        << "what only one rank had is removed with the next one that is saved";
  });
}

TEST(ReduceLROnPlateau, MultipliesTheRateAndTheRatesOfGroups) {
  on_ranks([](cluster::Context& context) {
    nn::Dense network(1, 1);
    nn::MSELoss loss;
    nn::SGD optimizer(
        {.learning_rate = 0.5, .groups = {{.parameters = {network.parameters()[1]}, .learning_rate = 0.25}}});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kDataParallel, .metrics = {mean_loss()}});
    std::vector<std::string> lines;
    std::vector<double> rates;
    struct Read : Callback {
      explicit Read(std::vector<double>& into) : into(into) {}
      void epoch_end(RunContext& run) override { into.push_back(run.model.value("learning_rate").item()); }
      std::vector<double>& into;
    };
    const auto print = [&](const std::string& line) { lines.push_back(line); };
    // Nothing is learnt of rows of zeros.
    const auto zeros = data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 4,
                                       [](int64_t, std::span<const TensorView> outputs) {
                                         *outputs[0].as<float>() = 0;
                                         *outputs[1].as<float>() = 0;
                                       })
                           .batch(2);
    model.train(
        7, zeros,
        {ReduceLROnPlateau({.valid = zeros}, {.factor = 0.5, .patience = 2, .cooldown = 1, .min_rate = 0.2}, print),
         Read(rates)});
    // Better in epoch 1; epoch 4 is not counted, nor are those after the second change.
    EXPECT_THAT(
        rates, ElementsAre(0.5, 0.5, 0.25, 0.25, 0.25, testing::DoubleNear(0.2, 1e-7), testing::DoubleNear(0.2, 1e-7)));
    EXPECT_FLOAT_EQ(static_cast<float>(model.value("learning_rate_group_0").item()), 0.2F);
    if (context.rank() == 0) {
      EXPECT_THAT(lines, testing::Contains(
                             "epoch 3: loss has not been better for 2 epochs, learning_rate is 0.25 from here on"));
    } else {
      EXPECT_THAT(lines, ElementsAre());
    }
  });
}

TEST(ReduceLROnPlateau, ATableOfRatesIsRefused) {
  const auto context = cluster::single_context(1);
  nn::Dense network(1, 1);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = std::vector<double>{0.5, 0.25}});
  Model model(*context, network, &loss, &optimizer);
  EXPECT_THAT(
      [&] { model.train(1, doubles(), {ReduceLROnPlateau({.monitor = "train_loss"})}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the optimizer's learning rate is a table with one for each step")));
  EXPECT_THROW(ReduceLROnPlateau({}, {.factor = 1}), InvalidArgument);
  EXPECT_THROW(ReduceLROnPlateau({}, {.patience = 0}), InvalidArgument);
}

TEST(ReduceLROnPlateau, ALeastRateAboveTheRateIsRefused) {
  const auto context = cluster::single_context(1);
  nn::Dense network(1, 1);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.125});
  Model model(*context, network, &loss, &optimizer);
  const auto train = [&](double least) {
    model.train(1, doubles(), {ReduceLROnPlateau({.monitor = "train_loss"}, {.min_rate = least})});
  };
  EXPECT_THAT([&] { train(0.5); },
              ThrowsMessage<InvalidArgument>(HasSubstr("min_rate = 0.5 is above the learning rate, 0.125, which")));
  EXPECT_NO_THROW(train(0.125)) << "it may have been reduced before";
}

}  // namespace
}  // namespace tessera::train
