// Claims about what a rank tells of its training to those who look on.
#include "tessera/train/core/live_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;

// Twelve rows whose label is twice the sample, in batches of four.
data::Dataset rows_of_doubles() {
  return data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 12,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           *outputs[0].as<float>() = static_cast<float>(index) / 10;
                           *outputs[1].as<float>() = static_cast<float>(2 * index) / 10;
                         })
      .batch(4);
}

// A step takes so long, and may fail.
class SlowStep : public Callback {
 public:
  explicit SlowStep(int64_t ms, int64_t fails_at = 0) : ms_(ms), fails_at_(fails_at) {}
  void step_begin(RunContext& run) override {
    run.model.context().clock().sleep_ms(ms_);
    if (run.step + 1 == fails_at_) throw InvalidArgument("the step was told to fail");
  }

 private:
  int64_t ms_;
  int64_t fails_at_;
};

struct OneWeight {
  explicit OneWeight(cluster::Context& context)
      : optimizer({.learning_rate = 0.25}),
        model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel}) {}
  nn::Dense network{1, 1, {.has_bias = false}};
  nn::MSELoss loss;
  nn::SGD optimizer;
  Model model;
};

class Live : public testing::Test {
 protected:
  void look_on() {
    context_.set_figures_reader([this](const cluster::TrainingFigures& figures) { told_.push_back(figures); });
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const auto& figures : told_) all.push_back(figures.step);
    return all;
  }
  std::unique_ptr<cluster::Context> one_rank_ = cluster::single_context(1);
  FakeClock clock_;
  ContextWithClock context_{*one_rank_, clock_};
  std::vector<cluster::TrainingFigures> told_;
};

TEST_F(Live, IsToldAtTheBeginningAfterTheFirstStepOnceASecondAndAtTheEnd) {
  look_on();
  OneWeight job(context_);
  job.model.train(3, rows_of_doubles(), {SlowStep(400)});
  // At 0.0, then after the steps at 0.4 s, 1.6 s and 2.8 s, and at 3.6 s.
  EXPECT_THAT(steps(), testing::ElementsAre(0, 1, 4, 7, 9));
  EXPECT_EQ(told_[0].loss, std::nullopt);
  EXPECT_EQ(told_[0].num_epochs, 3);
  EXPECT_EQ(told_[0].steps_per_epoch, 3);
  EXPECT_EQ(told_[0].mode, "data_parallel");
  EXPECT_EQ(told_[1].rows_per_second, 10.0) << "four rows in 0.4 s";
  EXPECT_EQ(told_[2].rows_per_second, 10.0) << "twelve in 1.2 s";
  EXPECT_EQ(told_[2].epoch, 2);
  EXPECT_EQ(told_[2].learning_rate, 0.25);
  ASSERT_TRUE(told_[2].loss);
  EXPECT_GE(*told_[2].loss, 0);
  EXPECT_GT(told_[2].resident_bytes, 0);
  EXPECT_GT(told_[2].arena_bytes, 0);
  EXPECT_EQ(told_[3].ended, "");
  EXPECT_EQ(told_[4].ended, "completed");
}

TEST_F(Live, SaysHowATrainingFailed) {
  look_on();
  OneWeight job(context_);
  EXPECT_THROW(job.model.train(1, rows_of_doubles(), {SlowStep(10, 2)}), InvalidArgument);
  EXPECT_EQ(told_.back().ended, "failed");
  EXPECT_EQ(told_.back().step, 1);
}

TEST_F(Live, NamesTheNewestCheckpoint) {
  look_on();
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-live-{}", ::getpid());
  OneWeight job(context_);
  job.model.train(1, rows_of_doubles(),
                  {SlowStep(1000), ModelCheckpoint("live", folder.string(), {.save_checkpoint_steps = 2})});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(told_[1].checkpoint, "") << "before the first save";
  EXPECT_THAT(told_[2].checkpoint, HasSubstr("live"));
  EXPECT_TRUE(told_[2].checkpoint.ends_with(".ckpt"));
  EXPECT_EQ(told_[2].checkpoint_step, 2);
}

TEST_F(Live, IsToldOfALoopOfTheProgramsOwn) {
  look_on();
  OneWeight job(context_);
  const Tensor x = Tensor::full({DType::kF32, {4, 1}}, 1);
  const Tensor y = Tensor::full({DType::kF32, {4, 1}}, 2);
  const double loss = job.model.train_step({x.view(), y.view()}, 4);
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_EQ(told_[0].step, 1);
  EXPECT_EQ(told_[0].epoch, 0);
  EXPECT_EQ(told_[0].loss, loss);
}

TEST_F(Live, ChangesNoLoss) {
  OneWeight alone(context_);
  alone.model.train(2, rows_of_doubles(), {SlowStep(400)});
  const float unseen = alone.model.value(alone.model.names().front()).view().as<float>()[0];
  look_on();
  OneWeight watched(context_);
  watched.model.train(2, rows_of_doubles(), {SlowStep(400)});
  EXPECT_EQ(watched.model.value(watched.model.names().front()).view().as<float>()[0], unseen);
}

TEST(LiveRanks, EachTellTheSameLoss) {
  std::mutex mutex;
  std::map<int, std::vector<cluster::TrainingFigures>> told;
  run_ranks(3, [&](cluster::Context& context) {
    context.set_figures_reader([&, rank = context.rank()](const cluster::TrainingFigures& figures) {
      const std::lock_guard lock(mutex);
      told[rank].push_back(figures);
    });
    OneWeight job(context);
    job.model.train(2, rows_of_doubles());
  });
  ASSERT_EQ(told.size(), 3U);
  for (const auto& [rank, figures] : told) {
    EXPECT_EQ(figures.front().step, 0);
    EXPECT_EQ(figures.back().step, 6);
    EXPECT_EQ(figures.back().ended, "completed");
    EXPECT_EQ(figures.back().loss, told[0].back().loss);
  }
}

}  // namespace
}  // namespace tessera::train
