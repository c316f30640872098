// Saves that a thread writes while training goes on, on disks that are slow or fail: F43 and F44.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/context_with_disk.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/model.h"

namespace tessera::checkpoint::faults {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A disk that takes no byte before it is told to, and counts the files that are being written.
class SlowDisk : public MemoryFileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    return std::make_unique<File>(*this, path, MemoryFileSystem::create(path, mode));
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  void go_on() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = false;
    changed_.notify_all();
  }
  // From now on files whose paths have this in them cannot be written.
  void fail(const std::string& part) {
    const std::lock_guard lock(mutex_);
    failing_ = part;
  }
  int most_at_once() const { return most_at_once_; }

 private:
  class File : public WritableFile {
   public:
    File(SlowDisk& disk, std::string path, std::unique_ptr<WritableFile> inner)
        : disk_(disk), path_(std::move(path)), inner_(std::move(inner)) {
      const std::lock_guard lock(disk_.mutex_);
      if (is_data()) disk_.most_at_once_ = std::max(disk_.most_at_once_, ++disk_.num_open_);
    }
    ~File() override {
      const std::lock_guard lock(disk_.mutex_);
      if (is_data()) --disk_.num_open_;
    }
    void append(std::span<const std::byte> bytes) override {
      if (is_data()) disk_.wait(path_);
      inner_->append(bytes);
    }
    void write_at(int64_t offset, std::span<const std::byte> bytes) override {
      if (is_data()) disk_.wait(path_);
      inner_->write_at(offset, bytes);
    }
    void sync() override {}
    void close() override {}

   private:
    bool is_data() const { return path_.ends_with(".ckpt.tmp"); }

    SlowDisk& disk_;
    std::string path_;
    std::unique_ptr<WritableFile> inner_;
  };
  void wait(const std::string& path) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_stopped_; });
    if (path.find(failing_) != std::string::npos) throw IoError("{}: cannot write: No space left on device", path);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
  std::string failing_ = "nothing";
  int num_open_ = 0;
  int most_at_once_ = 0;
};

// Calls a function at the end of each step, before or after the callback that saves.
class AtStep : public train::Callback {
 public:
  explicit AtStep(std::function<void(int64_t)> action) : action_(std::move(action)) {}
  void step_end(train::RunContext& run) override { action_(run.step); }

 private:
  std::function<void(int64_t)> action_;
};

constexpr int64_t kSteps = 6;

// Trains kSteps steps and saves after every `interval` of them.
void train(SlowDisk& disk, int64_t interval, const std::function<void(int64_t)>& before_save) {
  ContextWithDisk context(disk);
  nn::Dense network(4, 3);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
  train::Model model(context, network, &loss, &optimizer, {.seed = 5});
  const auto dataset =
      data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {3}}}}, 2 * kSteps,
                      [](int64_t index, std::span<const TensorView> outputs) {
                        for (const auto& output : outputs) {
                          const auto value = static_cast<double>(index) / 8;
                          copy_elements(Tensor::full({DType::kF32, output.shape}, value).view(), output);
                        }
                      })
          .batch(2);
  const checkpoint::CheckpointConfig config{.save_checkpoint_steps = interval, .async_save = true};
  model.train(1, dataset, {AtStep(before_save), train::ModelCheckpoint("CKP", "d", config)});
}

std::vector<std::string> checkpoints(FileSystem& files) {
  auto names = files.list("d");
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".ckpt"); });
  return names;
}

TEST(Faults, F43_ASlowDiskDoesNotHoldUpSteps) {
  SlowDisk disk;
  std::vector<int64_t> steps_while_stopped;
  bool is_stopped = true;
  disk.stop();
  train(disk, 3, [&](int64_t step) {
    if (is_stopped) steps_while_stopped.push_back(step);
    if (step < kSteps) return;
    EXPECT_THAT(checkpoints(disk), ElementsAre()) << "the first save still waits for the disk";
    is_stopped = false;
    disk.go_on();
  });
  EXPECT_THAT(steps_while_stopped, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(checkpoints(disk), ElementsAre("CKP-1_3.ckpt", "CKP-1_6.ckpt"));
  EXPECT_EQ(disk.most_at_once(), 1) << "copies of the values must not pile up";
}

TEST(Faults, F44_ASaveWaitsForTheOneBeforeAndTheEndForTheLast) {
  SlowDisk disk;
  train(disk, 1, [&](int64_t step) {
    // The save of the step before may be under way, those before it are done.
    EXPECT_GE(std::ssize(checkpoints(disk)), step - 2);
    EXPECT_LE(std::ssize(checkpoints(disk)), step - 1);
  });
  // Five are kept. When train() returns, the last one is there and whole.
  EXPECT_THAT(checkpoints(disk),
              ElementsAre("CKP-1_2.ckpt", "CKP-1_3.ckpt", "CKP-1_4.ckpt", "CKP-1_5.ckpt", "CKP-1_6.ckpt"));
  const auto newest = checkpoint::find_newest(disk, "d", "CKP");
  EXPECT_EQ(newest.path, "d/CKP-1_6.ckpt");
  EXPECT_EQ(newest.state, checkpoint::Verified::kYes);
  EXPECT_EQ(disk.most_at_once(), 1);
}

TEST(Faults, F44_AModelThatGoesWaitsForTheSaveThatIsUnderWay) {
  SlowDisk disk;
  ContextWithDisk context(disk);
  nn::Dense network(4, 3);
  disk.stop();
  std::thread going_on;
  {
    train::Model model(context, network, nullptr, nullptr);
    model.save_checkpoint("d/x.ckpt", {.async = true});
    EXPECT_THAT(checkpoints(disk), ElementsAre());
    going_on = std::thread([&] { disk.go_on(); });
  }
  EXPECT_THAT(checkpoints(disk), ElementsAre("x.ckpt"));
  EXPECT_EQ(checkpoint::find_newest(disk, "d", "").state, checkpoint::Verified::kYes);
  going_on.join();
}

// The child has the parent's memory, not its thread.
TEST(Faults, F44_AChildOfForkLeavesTheSaveToItsParent) {
  SlowDisk disk;
  ContextWithDisk context(disk);
  nn::Dense network(4, 3);
  disk.stop();
  {
    train::Model model(context, network, nullptr, nullptr);
    model.save_checkpoint("d/x.ckpt", {.async = true});
    const pid_t child = fork();
    if (child == 0) {
      model.finish_saves();
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_THAT(checkpoints(disk), ElementsAre());
    disk.go_on();
  }
  EXPECT_THAT(checkpoints(disk), ElementsAre("x.ckpt"));
}

TEST(Faults, F30_ASaveThatFailsInTheBackgroundIsHeardOf) {
  SlowDisk disk;
  std::string message;
  try {
    disk.fail("CKP-1_4");
    train(disk, 2, [](int64_t) {});
  } catch (const IoError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("d/CKP-1_4.ckpt.tmp: cannot write: No space left on device"));
  EXPECT_EQ(checkpoint::find_newest(disk, "d", "CKP").path, "d/CKP-1_2.ckpt");
  disk.fail("nothing");
  train(disk, 2, [](int64_t) {});
  EXPECT_EQ(checkpoint::find_newest(disk, "d", "CKP").path, "d/CKP_1-1_6.ckpt");
}

}  // namespace
}  // namespace tessera::checkpoint::faults
