// Which checkpoint of a directory is taken, and what is said where none can be: by `tessera ckpt newest` and by a
// training that goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/read/list.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tessera/testing/context_with_disk.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/model.h"

namespace tessera::checkpoint::faults {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr int64_t kSteps = 4;

// A model on a disk, and the values that it had after each step that it has trained and saved.
struct Trained {
  ContextWithDisk context;
  nn::Dense network{4, 3};
  nn::MSELoss loss;
  nn::Momentum optimizer{{.learning_rate = 0.05, .momentum = 0.9}};
  train::Model model{context, network, &loss, &optimizer, {.seed = 5}};

  explicit Trained(FileSystem& files) : context(files) {}
  Tensor weight() { return model.value("weight"); }
};

std::string path_of(int64_t step) { return fmt::format("d/CKP-1_{}.ckpt", step); }

class NoteWeights : public train::Callback {
 public:
  explicit NoteWeights(std::map<int64_t, Tensor>& weights) : weights_(weights) {}
  void step_end(train::RunContext& run) override { weights_[run.step] = run.model.value("weight"); }

 private:
  std::map<int64_t, Tensor>& weights_;
};

// Trains an epoch of kSteps and saves after each; the weights after each step, from 1.
std::map<int64_t, Tensor> save_steps(FileSystem& files) {
  Trained trained(files);
  const auto dataset =
      data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {3}}}}, kSteps,
                      [](int64_t index, std::span<const TensorView> outputs) {
                        for (const auto& output : outputs) {
                          copy_elements(Tensor::full({DType::kF32, output.shape}, 0.5 + index).view(), output);
                        }
                      })
          .batch(1);
  const CheckpointConfig config{.save_checkpoint_steps = 1,
                                .append_info = {"epoch_num", "step_num"},
                                .append_values = {Entry("note", "all is well"), Entry("nothing", "")}};
  std::map<int64_t, Tensor> weights;
  trained.model.train(1, dataset, {NoteWeights(weights), train::ModelCheckpoint("CKP", "d", config)});
  return weights;
}

void overwrite(FileSystem& files, const std::string& path, const std::string& content) {
  files.write_atomically(path, content, 0600);
}

void flip(FileSystem& files, const std::string& path, int64_t draw) {
  auto content = files.read_text(path);
  const auto bit = static_cast<size_t>(draw) % (8 * content.size());
  content[bit / 8] = static_cast<char>(content[bit / 8] ^ 1 << bit % 8);
  overwrite(files, path, content);
}

// Faults of any number of checkpoints, and what they are, for the message of a test that fails. What has lost its
// manifest is damaged in no other way, for nothing shows it then.
std::string damage(FileSystem& files, uint64_t number) {
  uint64_t draw = 0;
  const auto below = [&](int64_t limit) {
    return random_below({.seed = 35, .stream = 0, .step = number}, draw++, limit);
  };
  std::set<int64_t> touched;
  std::set<int64_t> final;
  std::string done;
  const int64_t num_faults = 1 + below(5);
  for (int64_t i = 0; i < num_faults; ++i) {
    const int64_t step = 1 + below(kSteps);
    const int64_t kind = below(7);
    const auto path = path_of(step);
    const auto other = path_of(1 + below(kSteps));
    const bool is_there = files.exists(path) && files.exists(manifest_path(path)) && files.exists(other) &&
                          files.exists(manifest_path(other));
    if (final.contains(step) || !is_there || (kind == 4 && touched.contains(step))) continue;
    touched.insert(step);
    switch (kind) {
      case 0: flip(files, path, below(1 << 30)); break;
      case 1: flip(files, manifest_path(path), below(1 << 30)); break;
      case 2: {
        const auto content = files.read_text(path);
        overwrite(files, path, content.substr(0, static_cast<size_t>(below(std::ssize(content)))));
        break;
      }
      case 3: files.remove(path); break;
      case 4: files.remove(manifest_path(path)); break;
      case 5: overwrite(files, path, files.read_text(other)); break;
      default: overwrite(files, manifest_path(path), files.read_text(manifest_path(other))); break;
    }
    if (kind == 3 || kind == 4) final.insert(step);
    done += fmt::format(" {}:{}", step, kind);
  }
  return done;
}

TEST(Faults, F37_ATrainingGoesOnFromTheCheckpointThatIsNamedAsTheNewest) {
  MemoryFileSystem whole;
  const auto weights = save_steps(whole);
  int num_found = 0;
  int num_none = 0;
  for (uint64_t number = 0; number < 400; ++number) {
    MemoryFileSystem files;
    files.create_directories("d");
    for (const auto& name : whole.list("d"))
      overwrite(files, join_path("d", name), whole.read_text(join_path("d", name)));
    SCOPED_TRACE(fmt::format("case {}, step:fault{}", number, damage(files, number)));
    const auto choice = find_newest(files, "d", "");
    Trained resumed(files);
    // In one of two cases there are values that must not be overwritten by what is damaged.
    if (number % 2 == 1) resumed.model.set_value("weight", Tensor::zeros({DType::kF32, {3, 4}}));
    try {
      resumed.model.load_checkpoint("d");
    } catch (const NoUsableCheckpoint&) {
      EXPECT_FALSE(choice.found()) << choice.path;
      ++num_none;
      continue;
    }
    ++num_found;
    ASSERT_TRUE(choice.found());
    EXPECT_TRUE(bit_equal(resumed.weight(), weights.at(choice.position.step_in_epoch))) << choice.path;
  }
  EXPECT_GT(num_found, 300);
  EXPECT_GT(num_none, 0);
}

// Files of which one is not given: the disk has it no more, or this process has no room for it.
class WithheldFiles : public MemoryFileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    refuse(path);
    return MemoryFileSystem::open(path);
  }
  std::unique_ptr<RangeReader> open_ranges(const std::string& path) override {
    refuse(path);
    return MemoryFileSystem::open_ranges(path);
  }
  std::string withheld;
  bool lacks_room = false;

 private:
  void refuse(const std::string& path) const {
    if (path != withheld) return;
    if (lacks_room) throw NoRoom("{}: cannot map: Cannot allocate memory", path);
    throw IoError("{}: cannot read: Input/output error", path);
  }
};

// What limits this process says nothing of the file: nobody trains on from an older one for it.
TEST(Faults, F35_WhereThereIsNoRoomForTheNewestNoOlderOneIsTaken) {
  WithheldFiles files;
  save_steps(files);
  files.withheld = path_of(kSteps);
  EXPECT_EQ(find_newest(files, "d", "").path, path_of(kSteps - 1));
  files.lacks_room = true;
  EXPECT_THROW(find_newest(files, "d", ""), NoRoom);
  EXPECT_THROW(verify_checkpoints(files, "d"), NoRoom);
  EXPECT_THROW(list_checkpoints(files, "d"), NoRoom);
  Trained resumed(files);
  const auto before = resumed.weight();
  EXPECT_THROW(resumed.model.load_checkpoint("d"), NoRoom);
  EXPECT_TRUE(bit_equal(resumed.weight(), before));
  files.withheld = "";
  EXPECT_EQ(find_newest(files, "d", "").path, path_of(kSteps));
}

TEST(Faults, F37_AModelSaysOfEachCheckpointWhyNoneCanBeLoaded) {
  MemoryFileSystem files;
  save_steps(files);
  files.create_directories("empty");
  for (int64_t step = 1; step <= kSteps; ++step) {
    auto content = files.read_text(path_of(step));
    content[content.find("weight") + 40] ^= 1;
    overwrite(files, path_of(step), content);
  }
  Trained resumed(files);
  const Tensor before = resumed.weight();
  for (const auto& load : std::vector<std::function<void()>>{[&] { resumed.model.load_checkpoint("d"); },
                                                             [&] { resumed.model.load_parameters("d"); }}) {
    EXPECT_THAT(load, ThrowsMessage<NoUsableCheckpoint>(
                          AllOf(StartsWith("d: none of the 4 checkpoints there can be used:\n    " + path_of(4) + ": "),
                                HasSubstr("\n    " + path_of(3) + ": "), HasSubstr("\n    " + path_of(2) + ": "),
                                HasSubstr("\n    " + path_of(1) + ": "))));
  }
  EXPECT_TRUE(bit_equal(resumed.weight(), before));
  try {
    resumed.model.load_checkpoint("empty");
    ADD_FAILURE() << "nothing is there";
  } catch (const NoUsableCheckpoint& error) {
    ADD_FAILURE() << error.what();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), StartsWith("empty: holds no checkpoint"));
  }
}

TEST(Faults, F36_AModelSaysThatTheNewestHasLostItsFileAndGoesOnFromTheOneBefore) {
  MemoryFileSystem files;
  const auto weights = save_steps(files);
  files.remove(path_of(kSteps));
  Trained resumed(files);
  testing::internal::CaptureStderr();
  resumed.model.load_checkpoint("d");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(fmt::format("{0}: is missing; {0}.manifest describes it; {1} is taken instead", path_of(kSteps),
                                    path_of(kSteps - 1))));
  EXPECT_TRUE(bit_equal(resumed.weight(), weights.at(kSteps - 1)));
  for (int64_t step = 1; step < kSteps; ++step) files.remove(path_of(step));
  EXPECT_THAT([&] { resumed.model.load_checkpoint("d"); },
              ThrowsMessage<NoUsableCheckpoint>(HasSubstr(path_of(1) + ": is missing; ")));
}

TEST(Faults, F37_WhatTheDiskDoesNotGiveIsNotTakenForDamage) {
  BadSector files;
  const auto weights = save_steps(files);
  files.path = path_of(kSteps);
  Trained resumed(files);
  resumed.model.load_checkpoint("d");
  EXPECT_TRUE(bit_equal(resumed.weight(), weights.at(kSteps - 1)));
  for (int64_t step = 1; step < kSteps; ++step) files.remove(path_of(step));
  EXPECT_THAT([&] { resumed.model.load_checkpoint("d"); }, ThrowsMessage<IoError>(HasSubstr("Input/output error")));
}

}  // namespace
}  // namespace tessera::checkpoint::faults
