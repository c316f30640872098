// What a training that an exception ends leaves: the values of its last whole step, callbacks that have ended, and a
// model whose next training is a new one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/context_with_disk.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kSteps = 10;

// What fails in the data: a row that cannot be read, or one that makes the loss infinite; -1: nothing.
struct Rows {
  int64_t unreadable = -1;
  int64_t infinite = -1;
};

data::Dataset dataset(const Rows& rows = {}, int64_t batch_size = 1) {
  return data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {3}}}}, kSteps * batch_size,
                         [rows](int64_t index, std::span<const TensorView> outputs) {
                           if (index == rows.unreadable) throw IoError("row {}: Input/output error", index);
                           const double value =
                               index == rows.infinite ? std::numeric_limits<double>::infinity() : 0.1 + 0.2 * index;
                           for (const auto& output : outputs) {
                             copy_elements(Tensor::full({DType::kF32, output.shape}, value).view(), output);
                           }
                         })
      .batch(batch_size);
}

struct Trained {
  ContextWithDisk context;
  nn::Dense network{4, 3};
  nn::MSELoss loss;
  nn::Momentum optimizer{{.learning_rate = 0.01, .momentum = 0.9}};
  Model model;

  explicit Trained(FileSystem& files, int64_t accumulated = 1)
      : context(files),
        model(context, network, &loss, &optimizer, {.gradient_accumulation_steps = accumulated, .seed = 5}) {}
  Tensor weight() { return model.value("weight"); }
};

// Notes what it is told, and does something at a step's end.
class Notes : public Callback {
 public:
  struct Told {
    int begun = 0;
    int64_t steps = 0;
    int64_t last_epoch = 0;
    int ended = 0;
    bool ended_failed = false;
    Tensor weight{DType::kF32, {3, 4}};  // after the last step
  };
  explicit Notes(
      Told& told, std::function<void(RunContext&)> at_step = [](RunContext&) {})
      : told_(told), at_step_(std::move(at_step)) {}
  void begin(RunContext& run) override {
    ++told_.begun;
    EXPECT_FALSE(run.has_failed);
  }
  void step_end(RunContext& run) override {
    ++told_.steps;
    told_.last_epoch = run.epoch;
    told_.weight = run.model.value("weight");
    at_step_(run);
  }
  void end(RunContext& run) override {
    ++told_.ended;
    told_.ended_failed = run.has_failed;
  }

 private:
  Told& told_;
  std::function<void(RunContext&)> at_step_;
};

void fail_at_step_4(RunContext& run) {
  if (run.step_in_epoch == 4) throw InvalidArgument("a callback that fails");
}

// The next training is a new one: it has as many epochs and steps as it is asked for.
void expect_new_training(Trained& trained) {
  Notes::Told told;
  trained.model.train(2, dataset(), {Notes(told)});
  EXPECT_EQ(told.steps, 2 * kSteps);
  EXPECT_EQ(told.last_epoch, 2);
  EXPECT_EQ(told.ended, 1);
  EXPECT_FALSE(told.ended_failed);
}

TEST(FailedTraining, ByACallbackHasEndedAllThatHadBegun) {
  MemoryFileSystem files;
  Trained trained(files);
  Notes::Told first;
  Notes::Told second;
  EXPECT_THROW(trained.model.train(1, dataset(), {Notes(first), Notes(second, fail_at_step_4)}), InvalidArgument);
  for (const auto& told : {first, second}) {
    EXPECT_EQ(told.steps, 4);
    EXPECT_EQ(told.ended, 1);
    EXPECT_TRUE(told.ended_failed);
  }
  EXPECT_TRUE(bit_equal(trained.weight(), second.weight)) << "the step was whole";
  expect_new_training(trained);
}

class FailsToBegin : public Callback {
 public:
  void begin(RunContext&) override { throw IoError("a callback that cannot begin"); }
  void end(RunContext&) override { ADD_FAILURE() << "it has not begun"; }
};

TEST(FailedTraining, ByACallbackThatCannotBeginEndsThoseThatHadBegun) {
  MemoryFileSystem files;
  Trained trained(files);
  Notes::Told before;
  Notes::Told after;
  EXPECT_THROW(trained.model.train(1, dataset(), {Notes(before), FailsToBegin(), Notes(after)}), IoError);
  EXPECT_EQ(before.ended, 1);
  EXPECT_EQ(after.begun, 0);
  EXPECT_EQ(after.ended, 0);
  expect_new_training(trained);
}

TEST(FailedTraining, ByALossThatIsNotFiniteHasTheTypeThatAStepHas) {
  MemoryFileSystem files;
  Trained trained(files);
  Notes::Told told;
  EXPECT_THAT([&] { trained.model.train(1, dataset({.infinite = 6}), {Notes(told)}); },
              ThrowsMessage<executor::NonFiniteLoss>(
                  HasSubstr("epoch: 1 step: 7. Invalid loss, terminating training. loss is ")));
  EXPECT_EQ(told.steps, 6);
  EXPECT_TRUE(told.ended_failed);
  EXPECT_TRUE(bit_equal(trained.weight(), told.weight)) << "the values are those before the step";
  const auto infinite = Tensor::full({DType::kF32, {1, 4}}, std::numeric_limits<double>::infinity());
  EXPECT_THROW(trained.model.train_step({infinite.view(), Tensor::zeros({DType::kF32, {1, 3}}).view()}, 1),
               executor::NonFiniteLoss);
  expect_new_training(trained);
}

TEST(FailedTraining, ByDataHasTheValuesOfItsLastStep) {
  MemoryFileSystem files;
  Trained trained(files);
  Notes::Told told;
  EXPECT_THROW(trained.model.train(3, dataset({.unreadable = 7}), {Notes(told)}), IoError);
  EXPECT_EQ(told.steps, 7);
  EXPECT_TRUE(bit_equal(trained.weight(), told.weight));
  expect_new_training(trained);
}

// What fails and what is stopped at the same step are alike from there on.
TEST(FailedTraining, WithinAnAccumulatedStepHasForgottenItsMicroBatches) {
  MemoryFileSystem files;
  Trained failed(files, 2);
  Trained stopped(files, 2);
  EXPECT_THROW(failed.model.train(1, dataset({.unreadable = 5})), IoError);  // the second half of the third step
  Notes::Told told;
  stopped.model.train(1, dataset(), {Notes(told, [](RunContext& run) {
                        if (run.step == 2) run.request_stop();
                      })});
  EXPECT_TRUE(bit_equal(failed.weight(), stopped.weight()));
  failed.model.train(1, dataset());
  stopped.model.train(1, dataset());
  EXPECT_TRUE(bit_equal(failed.weight(), stopped.weight()));
}

TEST(FailedTraining, IsSavedAsFarAsItCameAndGoesOnFromThere) {
  MemoryFileSystem files;
  files.create_directories("d");
  Trained trained(files);
  Notes::Told told;
  EXPECT_THROW(trained.model.train(1, dataset(), {Notes(told, fail_at_step_4)}), InvalidArgument);
  trained.model.save_checkpoint("d/failed.ckpt");
  Trained resumed(files);
  EXPECT_EQ(resumed.model.load_checkpoint("d/failed.ckpt").step_in_epoch, 4);
  told = {};
  resumed.model.train(1, dataset(), {Notes(told)});
  EXPECT_EQ(told.steps, kSteps - 4);
  // And so does the model itself, once it has loaded it.
  trained.model.load_checkpoint("d/failed.ckpt");
  told = {};
  trained.model.train(1, dataset(), {Notes(told)});
  EXPECT_EQ(told.steps, kSteps - 4);
}

TEST(FailedTraining, LeavesTheDirectoryOfItsCheckpointsToOthersAndSavesNothingMore) {
  MemoryFileSystem files;
  Trained trained(files);
  const ModelCheckpoint saver("CKP", "d", {.save_checkpoint_steps = 3});
  Notes::Told told;
  EXPECT_THROW(trained.model.train(1, dataset(), {saver, Notes(told, fail_at_step_4)}), InvalidArgument);
  EXPECT_THAT(files.list("d"), testing::IsSupersetOf({"CKP-1_3.ckpt"}));
  EXPECT_FALSE(files.exists("d/CKP-1_4.ckpt"));
  Trained other(files);
  other.model.train(1, dataset(), {saver});
}

}  // namespace
}  // namespace tessera::train
