// Ranks that save together: one checkpoint of several files, whole or absent after any crash, with the reason on every
// rank when one fails.
#include "tessera/checkpoint/write/save_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/lock/find_writer.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/read/inspect.h"
#include "tessera/checkpoint/read/list.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/write/checkpoint_config.h"
#include "tessera/checkpoint/write/retention.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kRanks = 3;

// `w` has its rows split over the ranks, 3, 2 and 2; `b` is whole on each. All elements are the step.
std::string save_rank(FileSystem& files, Barrier& barrier, const std::string& path, int64_t step,
                      const std::vector<int>& together = {0, 1, 2}) {
  const mesh::Mesh mesh({{"data", kRanks}});
  const std::vector<HeldValue> values{{"w", {DType::kF32, {7, 2}}, mesh::Layout{mesh, {{{0}, {}}, {}}}},
                                      {"empty", {DType::kF32, {0, 2}}, std::nullopt},
                                      {"b", {DType::kF32, {4}}, std::nullopt}};
  const auto regions = written_regions(values, together, barrier.rank());
  std::vector<Tensor> owners;
  std::vector<Slice> slices;
  for (size_t i = 0; i < values.size(); ++i) {
    Slice slice{values[i].name, values[i].type, regions[i], {}};
    if (regions[i]) {
      owners.push_back(Tensor::full({DType::kF32, regions[i]->shape}, static_cast<double>(step)));
      slice.value = owners.back().view();
    }
    slices.push_back(slice);
  }
  return save_slices(files, barrier,
                     {.path = path, .append_info = {Entry::number("step_num", step)}, .together = together}, slices,
                     {.epoch = 1, .step_in_epoch = step, .step = step, .world_size = kRanks});
}

std::vector<std::string> save_all(FileSystem& files, const std::string& path, int64_t step) {
  return ThreadBarrier::run(kRanks, [&](Barrier& barrier) { save_rank(files, barrier, path, step); });
}

// The step that all values show.
void expect_step(FileSystem& files, const std::string& path, int64_t step) {
  const auto checkpoint = load(files, path);
  EXPECT_TRUE(checkpoint.is_verified());
  EXPECT_EQ(checkpoint.manifest()->info.step, step);
  EXPECT_EQ(checkpoint.find("w")->type_text(), "f32[7,2]");
  for (const char* name : {"w", "b", "step_num"}) {
    EXPECT_THAT(checkpoint.find(name)->read().to_doubles(), Each(static_cast<double>(step))) << name;
  }
}

TEST(SaveSlices, OneDirectoryHasAFileOfEachRankAndOneManifest) {
  MemoryFileSystem files;
  EXPECT_THAT(save_all(files, "d/CKP-1_4", 4), Each("no error"));
  EXPECT_THAT(files.list("d"),
              ElementsAre("CKP-1_4.ckpt", "CKP-1_4.ckpt.manifest", "CKP-1_4.ckpt.rank_1", "CKP-1_4.ckpt.rank_2"));
  expect_step(files, "d/CKP-1_4.ckpt", 4);
  // `b` is written once.
  EXPECT_EQ(load(files, "d/CKP-1_4.ckpt").manifest()->tensors[2].slices.size(), 1U);
  EXPECT_EQ(load(files, "d/CKP-1_4.ckpt").find("empty")->type_text(), "f32[0,2]");
}

TEST(SaveSlices, AStrayFileOfTheHighestGenerationCostsNoCheckpoint) {
  MemoryFileSystem files;
  EXPECT_THAT(save_all(files, "d/CKP-1_4", 4), Each("no error"));
  overwrite(files, "d/CKP-1_4.ckpt.rank_1.9223372036854775807", "x");
  EXPECT_THAT(save_all(files, "d/CKP-1_4", 5), Each("no error"));
  expect_step(files, "d/CKP-1_4.ckpt", 5);
}

TEST(SaveSlices, ARankAloneInItsDirectoryWritesAllItHoldsAsTheReferenceDoes) {
  MemoryFileSystem files;
  ThreadBarrier::run(kRanks, [&](Barrier& barrier) {
    save_rank(files, barrier, fmt::format("rank_{}/CKP-1_4.ckpt", barrier.rank()), 4, {barrier.rank()});
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto directory = fmt::format("rank_{}", rank);
    EXPECT_THAT(files.list(directory), ElementsAre("CKP-1_4.ckpt", "CKP-1_4.ckpt.manifest"));
    const auto part = load(files, directory + "/CKP-1_4.ckpt");
    EXPECT_EQ(part.find("w")->shape, Shape({rank == 0 ? 3 : 2, 2}));
    EXPECT_EQ(part.find("b")->shape, Shape({4}));
  }
}

TEST(SaveSlices, OverwritingANameLeavesNoFileOfTheOldOne) {
  MemoryFileSystem files;
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_THAT(save_all(files, "d/x.ckpt", step), Each("no error"));
    expect_step(files, "d/x.ckpt", step);
    EXPECT_EQ(files.list("d").size(), 4U);
  }
  save(files, {.path = "d/x.ckpt"}, std::vector<Entry>{{"b", Tensor::full({DType::kF32, {4}}, 9)}}, {});
  EXPECT_THAT(load(files, "d/x.ckpt").find("b")->read().to_doubles(), Each(9));
}

TEST(SaveSlices, ACrashAtAnyInstantLeavesTheOldOrTheNewOne) {
  CrashFileSystem files;
  save_all(files, "d/x.ckpt", 1);
  const size_t first = files.num_operations();
  save_all(files, "d/x.ckpt", 2);
  bool seen[3] = {};
  for_each_crash(files, first, [&](MemoryFileSystem& state) {
    const auto verification = verify(state, "d/x.ckpt");
    ASSERT_EQ(verification.state, Verified::kYes) << verification.problem;
    const auto step = verification.manifest->info.step;
    expect_step(state, "d/x.ckpt", step);
    seen[step] = true;
    EXPECT_THAT(save_all(state, "d/x.ckpt", 3), Each("no error"));
    expect_step(state, "d/x.ckpt", 3);
    EXPECT_EQ(state.list("d").size(), 4U);
  });
  EXPECT_TRUE(seen[1] && seen[2]);
}

TEST(SaveSlices, KeepingOneSurvivesACrashAtAnyInstant) {
  CrashFileSystem files;
  const auto config = validated({.keep_checkpoint_max = 1});
  Retention retention(files, "d", "CKP", config);
  save_all(files, "d/CKP-1_1.ckpt", 1);
  retention.apply();
  const size_t first = files.num_operations();
  save_all(files, "d/CKP-1_2.ckpt", 2);
  EXPECT_THAT(retention.apply(), ElementsAre("CKP-1_1.ckpt"));
  EXPECT_EQ(files.list("d").size(), 4U);
  for_each_crash(files, first, [&](MemoryFileSystem& state) {
    const auto choice = find_newest(state, "d", "CKP");
    ASSERT_TRUE(choice.found());
    expect_step(state, choice.path, choice.position.step_in_epoch);
    // What the crash left goes with the next retention.
    save_all(state, "d/CKP-1_3.ckpt", 3);
    Retention(state, "d", "CKP", config).apply();
    EXPECT_THAT(state.list("d"),
                ElementsAre("CKP-1_3.ckpt", "CKP-1_3.ckpt.manifest", "CKP-1_3.ckpt.rank_1", "CKP-1_3.ckpt.rank_2"));
  });
}

// Notes what is done where the other ranks would hear nothing of it.
class WatchedDisk : public MemoryFileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    note("create", path);
    return MemoryFileSystem::create(path, mode);
  }
  std::vector<std::string> list(const std::string& directory) override {
    note("list", directory);
    return MemoryFileSystem::list(directory);
  }
  void rename(const std::string& from, const std::string& to) override {
    note("rename", from);
    MemoryFileSystem::rename(from, to);
  }
  void remove(const std::string& path) override {
    note("remove", path);
    MemoryFileSystem::remove(path);
  }
  void sync_directory(const std::string& directory) override { note("sync", directory); }
  std::vector<std::string> silent() {
    const std::lock_guard lock(mutex_);
    return silent_;
  }

 private:
  void note(const char* operation, const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (!is_in_long_run) silent_.push_back(fmt::format("{} {}", operation, path));
  }

  std::mutex mutex_;
  std::vector<std::string> silent_;
};

TEST(SaveSlices, NoRankWorksOnADiskWhileOthersHearNothingOfIt) {
  WatchedDisk files;
  const auto messages = ThreadBarrier::run(kRanks, [&](Barrier& barrier) {
    find_writer(files, barrier, "d");
    for (int64_t step = 1; step <= 2; ++step) save_rank(files, barrier, "d/CKP-1_1.ckpt", step);
    save(files, {.path = "d/CKP-1_2.ckpt", .barrier = &barrier},
         std::vector<Entry>{{"b", Tensor::full({DType::kF32, {4}}, 9)}}, {.epoch = 1, .step_in_epoch = 2});
  });
  EXPECT_THAT(messages, Each("no error"));
  EXPECT_THAT(files.silent(), ElementsAre());
}

// Fails when rank 1's file is made.
class FullDisk : public MemoryFileSystem {
 public:
  bool is_full = false;
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    if (is_full && path.find("rank_1") != std::string::npos) throw IoError("{}: No space left on device", path);
    return MemoryFileSystem::create(path, mode);
  }
};

TEST(SaveSlices, AFailingRankFailsAllWithItsReasonAndLeavesNothing) {
  FullDisk files;
  save_all(files, "d/x.ckpt", 1);
  const auto before = files.list("d");
  files.is_full = true;
  const auto messages = save_all(files, "d/x.ckpt", 2);
  EXPECT_EQ(messages[1], "d/x.ckpt.rank_1.2: No space left on device");
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(messages[rank], "rank 1: cannot save: d/x.ckpt.rank_1.2: No space left on device");
  }
  EXPECT_EQ(files.list("d"), before);
  expect_step(files, "d/x.ckpt", 1);
}

TEST(SaveSlices, ListVerifyInspectAndConversionKnowAllFiles) {
  MemoryFileSystem files;
  save_all(files, "d/CKP-1_4.ckpt", 4);
  const auto list = list_checkpoints(files, "d");
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].num_files, 3);
  EXPECT_EQ(list[0].num_elements, 7 * 2 + 4 + 1);
  EXPECT_THAT(list_table(list), HasSubstr("3 files of 3 ranks"));
  EXPECT_THAT(inspect_table(files, "d/CKP-1_4.ckpt").text, HasSubstr("f32[7,2]"));
  transform_checkpoints(files, "d", "out", "whole", "", "");
  EXPECT_THAT(load(files, "out/rank_0/whole0.ckpt").find("w")->read().to_doubles(), Each(4));

  auto damaged = files.read_text("d/CKP-1_4.ckpt.rank_2");
  damaged[damaged.size() - 1] ^= 1;
  overwrite(files, "d/CKP-1_4.ckpt.rank_2", damaged);
  const auto verification = verify(files, "d/CKP-1_4.ckpt");
  EXPECT_EQ(verification.state, Verified::kNo);
  EXPECT_THAT(verification.problem, testing::AllOf(HasSubstr("rank_2"), HasSubstr("\"w\"")));
  files.remove("d/CKP-1_4.ckpt.rank_2");
  EXPECT_THAT(verify(files, "d/CKP-1_4.ckpt").problem, HasSubstr("d/CKP-1_4.ckpt.rank_2: is missing"));
}

TEST(SaveSlices, AreNotTakenForTheWholeWhereNothingElseIsLeft) {
  MemoryFileSystem files;
  save_all(files, "d/x.ckpt", 1);
  for (const char* name : {"d/x.ckpt", "d/x.ckpt.manifest"}) files.remove(name);
  const auto verified = verify_checkpoints(files, "d/x.ckpt.rank_1");
  ASSERT_EQ(verified.size(), 1U);
  EXPECT_EQ(verified[0].state, Verified::kNo);
  EXPECT_THAT(verified[0].problem, HasSubstr("d/x.ckpt.rank_1: holds one rank's slices of d/x.ckpt"));
  EXPECT_EQ(inspect_table(files, "d/x.ckpt.rank_1").state, Verified::kNo);
}

TEST(SaveSlices, WithoutTheirManifestTheSlicesOfOneRankAreNotTakenForTheWhole) {
  MemoryFileSystem files;
  for (const int64_t step : {4, 5}) save_all(files, fmt::format("d/CKP-1_{}.ckpt", step), step);
  files.remove("d/CKP-1_5.ckpt.manifest");
  const std::string refusal =
      "d/CKP-1_5.ckpt: holds one rank's slices, for CKP-1_5.ckpt.rank_1 lies beside it; d/CKP-1_5.ckpt.manifest, which "
      "says where they belong, is missing";
  EXPECT_EQ(message_of([&] { load(files, "d/CKP-1_5.ckpt"); }), refusal);
  EXPECT_EQ(verify(files, "d/CKP-1_5.ckpt").problem, refusal);
  EXPECT_EQ(find_newest(files, "d", "CKP").path, "d/CKP-1_4.ckpt");
  files.remove("d/CKP-1_4.ckpt.manifest");
  EXPECT_FALSE(find_newest(files, "d", "CKP").found());
}

}  // namespace
}  // namespace tessera::checkpoint
