#include "tessera/checkpoint/write/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/checkpoint/lock/find_writer.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Entry> entries(float value) {
  return {Entry("conv.weight", Tensor::full({DType::kF32, {2, 3}}, value)),
          Entry("bn.empty", Tensor(DType::kF32, {0, 4})), Entry("bn.gamma", Tensor::full({DType::kBF16, {3}}, value))};
}

std::string save_step(FileSystem& files, int64_t step, const std::string& path = "d/CKP-1_1.ckpt") {
  return save(files, {.path = path, .append_info = {Entry::number("step_num", step)}},
              entries(static_cast<float>(step)), {.epoch = 1, .step_in_epoch = step, .step = step});
}

// The step that the values themselves show; -1 when they do not all show one.
int64_t step_of(const Checkpoint& checkpoint) {
  const auto step = static_cast<int64_t>(checkpoint.find("step_num")->read().item());
  for (const char* name : {"conv.weight", "bn.gamma"}) {
    for (const double value : checkpoint.find(name)->read().to_doubles()) {
      if (value != static_cast<double>(step)) return -1;
    }
  }
  return checkpoint.manifest() && checkpoint.manifest()->info.step != step ? -1 : step;
}

TEST(Save, WhatIsSavedIsLoadedAndVerified) {
  MemoryFileSystem files;
  const CheckpointInfo info{.epoch = 3, .step_in_epoch = 2, .step = 10, .job_id = "j", .data_position = "here"};
  EXPECT_EQ(save(files, {.path = "a/b/net", .append_info = {Entry::number("epoch_num", int64_t{3})}}, entries(5), info),
            "a/b/net.ckpt");
  EXPECT_THAT(files.list("a/b"), ElementsAre("net.ckpt", "net.ckpt.manifest"));
  const auto checkpoint = load(files, "a/b/net.ckpt");
  EXPECT_TRUE(checkpoint.is_verified());
  EXPECT_EQ(checkpoint.manifest()->info, info);
  std::vector<std::string> names;
  for (const auto& entry : checkpoint.entries()) names.push_back(entry.name + " " + entry.type_text());
  EXPECT_THAT(names, ElementsAre("conv.weight f32[2,3]", "bn.empty f32[0,4]", "bn.gamma bf16[3]", "epoch_num i64[]"));
  EXPECT_TRUE(checkpoint.find("epoch_num")->appended);
  EXPECT_FALSE(checkpoint.find("bn.gamma")->appended);
  EXPECT_EQ(checkpoint.find("nothing"), nullptr);
  EXPECT_THAT(checkpoint.find("bn.gamma")->read().to_doubles(), ElementsAre(5, 5, 5));
}

TEST(Save, ReplacesACheckpointOfTheSameName) {
  MemoryFileSystem files;
  save_step(files, 1);
  save_step(files, 2);
  EXPECT_THAT(files.list("d"), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  EXPECT_EQ(step_of(load(files, "d/CKP-1_1.ckpt")), 2);
}

TEST(Save, SaversOfOneNameEachSucceedAndTheLastWinsWhole) {
  auto& files = FileSystem::local();
  const std::string directory = join_path(TESSERA_BINARY_DIR, "save_test_together");
  files.remove_directory_tree(directory);
  const auto path = join_path(directory, "CKP-1_1.ckpt");
  files.create_directories(directory);
  overwrite(files, path + ".tmp", "left by a saver that was killed");
  overwrite(files, path + ".saving", "");
  constexpr int kSavers = 4;
  const auto messages = ThreadBarrier::run(kSavers, [&](Barrier& barrier) {
    for (int64_t round = 0; round < 8; ++round) {
      barrier.exchange("");
      const auto step = 1 + kSavers * round + barrier.rank();
      EXPECT_EQ(message_of([&] { save_step(files, step, path); }), "no error");
      barrier.exchange("");
      EXPECT_EQ(verify(files, path).state, Verified::kYes);
      EXPECT_EQ(message_of([&] { EXPECT_GT(step_of(load(files, path)), kSavers * round); }), "no error");
    }
  });
  EXPECT_THAT(messages, testing::Each("no error"));
  EXPECT_THAT(files.list(directory), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  files.remove_directory_tree(directory);
}

TEST(Save, WorksOnTheRealFileSystem) {
  auto& files = FileSystem::local();
  const std::string directory = join_path(TESSERA_BINARY_DIR, "save_test");
  files.remove_directory_tree(directory);
  const auto path = join_path(directory, "sub/CKP-1_1.ckpt");
  for (const bool read_only : {true, false, true}) {  // a read-only one can be replaced
    save(files, {.path = path, .append_info = {Entry::number("step_num", int64_t{4})}, .read_only = read_only},
         entries(4), {.step = 4});
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ((status.st_mode & 0777) == 0400, read_only);
    EXPECT_EQ(step_of(load(files, path)), 4);
  }
  files.remove_directory_tree(directory);
}

TEST(Save, ARefusedSaveLeavesEverythingAsItWas) {
  MemoryFileSystem files;
  save_step(files, 1);
  auto twice = entries(2);
  twice.push_back(twice[0]);
  EXPECT_THAT(message_of([&] { save(files, {.path = "d/CKP-1_1.ckpt"}, twice, {}); }), HasSubstr("occurs twice"));
  EXPECT_THAT(message_of([&] { save(files, {.path = "d/none"}, {}, {}); }),
              HasSubstr("none.ckpt: a checkpoint must have a tensor with elements"));
  EXPECT_THAT(files.list("d"), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  EXPECT_EQ(step_of(load(files, "d/CKP-1_1.ckpt")), 1);
}

TEST(Save, ADirectoryIsNoName) {
  MemoryFileSystem files;
  for (const char* name : {"d", "d.ckpt"}) {
    files.create_directories("d");
    files.create_directories("d.ckpt");
    EXPECT_THAT(message_of([&] { save(files, {.path = name}, entries(1), {}); }),
                HasSubstr(std::string(name) + ": is a directory; a checkpoint needs the name of a file, such as "));
  }
  EXPECT_THAT(message_of([&] { save(files, {.path = "e/"}, entries(1), {}); }), HasSubstr("such as e/model.ckpt"));
  EXPECT_THAT(files.list("d"), IsEmpty());
  EXPECT_FALSE(files.exists("e"));
}

TEST(Save, AFullDiskAtAnyMomentLeavesAVerifiedCheckpointAndTheNextSaveWorks) {
  CrashFileSystem whole;
  save_step(whole, 1);
  const size_t first = whole.num_operations();
  save_step(whole, 2);
  // The last operation removes the lock, which works on a full disk.
  for (size_t at = first; at + 1 < whole.num_operations(); ++at) {
    CrashFileSystem files;
    save_step(files, 1);
    files.fail_from(at);
    EXPECT_THAT(message_of([&] { save_step(files, 2); }), HasSubstr("No space left on device"));
    const auto left = load(files, "d/CKP-1_1.ckpt");
    EXPECT_TRUE(left.is_verified());
    EXPECT_THAT(step_of(left), testing::AnyOf(1, 2)) << at;
    files.fail_from(SIZE_MAX);
    save_step(files, 3);
    EXPECT_EQ(step_of(load(files, "d/CKP-1_1.ckpt")), 3);
    EXPECT_THAT(files.list("d"), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  }
}

TEST(Save, ACrashAtAnyInstantOfAnOverwriteLeavesTheOldOrTheNewOne) {
  CrashFileSystem files;
  save_step(files, 1);
  const size_t first = files.num_operations();
  save_step(files, 2);
  bool seen[3] = {};
  const int states = for_each_crash(files, first, [&](MemoryFileSystem& state) {
    const auto checkpoint = load(state, "d/CKP-1_1.ckpt");
    EXPECT_TRUE(checkpoint.is_verified());
    const auto step = step_of(checkpoint);
    ASSERT_THAT(step, testing::AnyOf(1, 2));
    seen[step] = true;
    // What the crash left must not be in the way of the next one, nor of a crash of that.
    save_step(state, 3);
    EXPECT_EQ(step_of(load(state, "d/CKP-1_1.ckpt")), 3);
    EXPECT_THAT(state.list("d"), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  });
  EXPECT_TRUE(seen[1] && seen[2]);
  EXPECT_GT(states, 200);
}

TEST(Save, ACrashAfterACrashLeavesAVerifiedOne) {
  // The hard case: the first crash came between the two renames, so the waiting manifest is the one that counts.
  CrashFileSystem files;
  save_step(files, 1);
  const size_t first = files.num_operations();
  save_step(files, 2);
  for (size_t count = first; count <= files.num_operations(); ++count) {
    const auto state = files.crash_state(count, Unsynced::kKept);
    CrashFileSystem again;
    again.create_directories("d");
    for (const auto& name : state->list("d")) {
      const auto path = join_path("d", name);
      const auto file = again.create(path);
      file->append(state->read_text(path));
      file->sync();
    }
    again.sync_directory("d");
    const size_t start = again.num_operations();
    save_step(again, 3);
    for_each_crash(again, start, [&](MemoryFileSystem& twice) {
      const auto checkpoint = load(twice, "d/CKP-1_1.ckpt");
      EXPECT_TRUE(checkpoint.is_verified());
      EXPECT_THAT(step_of(checkpoint), testing::AnyOf(1, 2, 3));
    });
  }
}

TEST(Save, ANewNameIsWholeOrAbsentAfterAnyCrash) {
  CrashFileSystem files;
  save_step(files, 1);
  for_each_crash(files, 0, [&](MemoryFileSystem& state) {
    if (!state.exists("d/CKP-1_1.ckpt")) return;
    const auto checkpoint = load(state, "d/CKP-1_1.ckpt");
    EXPECT_TRUE(checkpoint.is_verified());
    EXPECT_EQ(step_of(checkpoint), 1);
  });
}

TEST(Load, EveryTruncationAndEveryBitFlipIsDetected) {
  MemoryFileSystem files;
  save_step(files, 1);
  const auto whole = files.read_text("d/CKP-1_1.ckpt");
  for (size_t at = 0; at < whole.size(); ++at) {
    overwrite(files, "d/CKP-1_1.ckpt", whole.substr(0, at));
    ASSERT_EQ(verify(files, "d/CKP-1_1.ckpt").state, Verified::kNo) << at;
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      overwrite(files, "d/CKP-1_1.ckpt", damaged);
      ASSERT_EQ(verify(files, "d/CKP-1_1.ckpt").state, Verified::kNo) << at << " bit " << bit;
    }
  }
}

TEST(Load, DamageNamesFileAndTensor) {
  MemoryFileSystem files;
  save_step(files, 1);
  const std::string path = "d/CKP-1_1.ckpt";
  const auto whole = files.read_text(path);
  const auto offset = load(files, path).find("bn.gamma")->pieces[0].data() - load(files, path).file().bytes().data();
  auto damaged = whole;
  damaged[static_cast<size_t>(offset)] ^= 1;
  overwrite(files, path, damaged);
  EXPECT_THAT(
      message_of([&] { load(files, path); }),
      testing::AllOf(HasSubstr("d/CKP-1_1.ckpt: crc32c is"), HasSubstr("the tensor \"bn.gamma\" bf16[3] at byte")));
  overwrite(files, path, whole.substr(0, 50));
  EXPECT_THAT(message_of([&] { load(files, path); }), HasSubstr("has 50 bytes"));
  EXPECT_THAT(message_of([&] { load(files, path); }), HasSubstr("the file is truncated"));
  EXPECT_THAT(message_of([&] { load(files, "d/none.ckpt"); }), HasSubstr("d/none.ckpt"));
  EXPECT_THAT(message_of([&] { load(files, "d/none"); }), HasSubstr("must end in .ckpt"));
}

TEST(Load, WithoutAManifestNothingIsVerified) {
  MemoryFileSystem files;
  save_step(files, 7);
  files.remove("d/CKP-1_1.ckpt.manifest");
  EXPECT_EQ(verify(files, "d/CKP-1_1.ckpt").state, Verified::kNoManifest);
  testing::internal::CaptureStderr();
  const auto checkpoint = load(files, "d/CKP-1_1.ckpt");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("nothing was verified"));
  EXPECT_FALSE(checkpoint.is_verified());
  EXPECT_EQ(step_of(checkpoint), 7);
}

TEST(Load, ACheckpointUnderAnothersManifestIsRefused) {
  MemoryFileSystem files;
  save_step(files, 1, "d/a.ckpt");
  save_step(files, 2, "d/b.ckpt");
  overwrite(files, "d/a.ckpt", files.read_text("d/b.ckpt"));
  EXPECT_THAT(message_of([&] { load(files, "d/a.ckpt"); }), HasSubstr("d/a.ckpt: crc32c is"));
  files.rename("d/b.ckpt.manifest", "d/a.ckpt.manifest");
  EXPECT_THAT(message_of([&] { load(files, "d/a.ckpt"); }), HasSubstr("describes b.ckpt, not a.ckpt"));
}

TEST(Load, AManifestThatLiesAboutAnIntactFileIsRefused) {
  MemoryFileSystem files;
  save_step(files, 1);
  const std::string path = "d/CKP-1_1.ckpt";
  const auto manifest = parse_manifest(files.read_text(manifest_path(path)), "m");
  const auto refusal = [&](const std::function<void(Manifest&)>& lie) {
    auto edited = manifest;
    lie(edited);
    overwrite(files, manifest_path(path), to_text(edited));
    return message_of([&] { load(files, path); });
  };
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].name = "other"; }),
              HasSubstr("value 0 is \"conv.weight\", it must be \"other\""));
  EXPECT_THAT(refusal([](Manifest& m) {
                m.tensors[0].shape = m.tensors[0].slices[0].shape = {3, 2};
              }),
              HasSubstr("tensor \"conv.weight\" is f32[2,3] of 24 bytes, it must be f32[3,2]"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors.pop_back(); }), HasSubstr("the file has the value \"step_num\" too"));
  EXPECT_THAT(
      refusal([](Manifest& m) {
        m.tensors.push_back({.name = "x", .shape = {1}, .slices = {{.offset = {0}, .shape = {1}, .size_bytes = 4}}});
      }),
      HasSubstr("tensor \"x\" is missing in the file"));
  EXPECT_THAT(refusal([](Manifest& m) { m.files.push_back({.name = "y"}); }),
              HasSubstr("d/y: is missing; d/CKP-1_1.ckpt.manifest describes it"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].slices.clear(); }), HasSubstr("\"conv.weight\" has no slices"));
}

TEST(Barrier, RanksOfOneDirectoryWriteOneCheckpoint) {
  MemoryFileSystem files;
  const auto messages = ThreadBarrier::run(4, [&](Barrier& barrier) {
    const int writer = find_writer(files, barrier, "d");
    EXPECT_EQ(writer, 0);
    save(files, {.path = "d/x.ckpt", .barrier = &barrier, .writer = writer},
         entries(static_cast<float>(barrier.rank())), {});
  });
  EXPECT_THAT(messages, testing::Each("no error"));
  EXPECT_THAT(files.list("d"), ElementsAre("x.ckpt", "x.ckpt.manifest"));
  EXPECT_THAT(load(files, "d/x.ckpt").find("bn.gamma")->read().to_doubles(), testing::Each(0));
}

TEST(Barrier, RanksOfDifferentDirectoriesWriteTheirOwn) {
  // Ranks 1 and 3 name the same path as rank 0, but on another host's disk.
  MemoryFileSystem here;
  MemoryFileSystem there;
  const auto messages = ThreadBarrier::run(4, [&](Barrier& barrier) {
    auto& files = barrier.rank() % 2 == 0 ? here : there;
    const int writer = find_writer(files, barrier, "d");
    EXPECT_EQ(writer, barrier.rank() % 2);
    save(files, {.path = "d/x.ckpt", .barrier = &barrier, .writer = writer},
         entries(static_cast<float>(barrier.rank())), {});
  });
  EXPECT_THAT(messages, testing::Each("no error"));
  EXPECT_THAT(load(here, "d/x.ckpt").find("bn.gamma")->read().to_doubles(), testing::Each(0));
  EXPECT_THAT(load(there, "d/x.ckpt").find("bn.gamma")->read().to_doubles(), testing::Each(1));
}

// A rank that does something when it has put its file into the directory and waits for the others.
class InterruptedBarrier : public Barrier {
 public:
  InterruptedBarrier(Barrier& barrier, FileSystem& files, std::function<void()> interruption)
      : barrier_(barrier), files_(files), interruption_(std::move(interruption)) {}
  int rank() const override { return barrier_.rank(); }
  int size() const override { return barrier_.size(); }
  std::vector<std::string> exchange(const std::string& mine) override {
    if (interruption_ && files_.exists("d") && !files_.list("d").empty()) std::exchange(interruption_, nullptr)();
    return barrier_.exchange(mine);
  }

 private:
  Barrier& barrier_;
  FileSystem& files_;
  std::function<void()> interruption_;
};

TEST(Barrier, JobsThatLookForWritersInOneDirectoryDoNotSeeEachOther) {
  MemoryFileSystem files;
  const auto look = [&](int expected, Barrier& barrier) { EXPECT_EQ(find_writer(files, barrier, "d"), expected); };
  bool has_other_run = false;
  const auto messages = ThreadBarrier::run(3, [&](Barrier& barrier) {
    if (barrier.rank() != 0) return look(0, barrier);
    InterruptedBarrier interrupted(barrier, files, [&] {
      has_other_run = true;
      EXPECT_THAT(ThreadBarrier::run(2, [&](Barrier& other) { look(0, other); }), testing::Each("no error"));
    });
    look(0, interrupted);
  });
  EXPECT_THAT(messages, testing::Each("no error"));
  EXPECT_TRUE(has_other_run);
  EXPECT_THAT(files.list("d"), testing::IsEmpty());
}

// Knows which files were opened.
class WatchedFileSystem : public MemoryFileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    opened.push_back(path);
    return MemoryFileSystem::open(path);
  }
  std::vector<std::string> opened;
};

TEST(Verify, RefusesAFileThatHasGrownBeforeItIsMapped) {
  WatchedFileSystem files;
  const auto path = save_step(files, 1);
  const auto content = files.read_text(path);
  files.create(path)->append(content + "x");
  files.opened.clear();
  const auto verification = verify(files, path);
  EXPECT_EQ(verification.state, Verified::kNo);
  EXPECT_EQ(verification.problem, fmt::format("{}: has {} bytes, {} were written: the file was changed", path,
                                              content.size() + 1, content.size()));
  EXPECT_THAT(files.opened, ElementsAre(manifest_path(path)));
}

// Takes no further file.
class FullFileSystem : public MemoryFileSystem {
 public:
  std::unique_ptr<FileLock> try_lock(const std::string& path) override {
    throw IoError("{}: cannot open: No space left on device", path);
  }
};

TEST(Barrier, WhatAKilledLookLeftIsRemovedByTheNextAndALivingOnesStays) {
  MemoryFileSystem files;
  files.create_directories("d");
  const std::string dead = ".tessera-0123456789abcdef0123456789abcdef-0";
  const std::string living = ".tessera-fedcba9876543210fedcba9876543210-0";
  files.create("d/" + dead);
  files.create("d/.tessera-notes");
  const auto lock = files.try_lock("d/" + living);
  const auto messages = ThreadBarrier::run(3, [&](Barrier& barrier) { find_writer(files, barrier, "d"); });
  EXPECT_THAT(messages, testing::Each("no error"));
  EXPECT_THAT(files.list("d"), testing::UnorderedElementsAre(living, ".tessera-notes"));
}

TEST(Barrier, ALookThatFailsLeavesNothing) {
  MemoryFileSystem files;
  FullFileSystem full;
  const auto messages = ThreadBarrier::run(3, [&](Barrier& barrier) {
    FileSystem& own = barrier.rank() == 1 ? static_cast<FileSystem&>(full) : files;
    find_writer(own, barrier, "d");
  });
  EXPECT_THAT(messages, testing::Each(HasSubstr("No space left")));
  EXPECT_THAT(files.list("d"), testing::IsEmpty());
}

TEST(Barrier, AFailedWriteFailsOnEveryRank) {
  CrashFileSystem files;
  files.create_directories("d");
  files.fail_from(3);
  const auto messages = ThreadBarrier::run(3, [&](Barrier& barrier) {
    save(files, {.path = "d/x.ckpt", .barrier = &barrier, .writer = 1}, entries(1), {});
  });
  EXPECT_THAT(messages[1], testing::StartsWith("d/x.ckpt.tmp: cannot write: No space left"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(messages[static_cast<size_t>(rank)], HasSubstr("rank 1: cannot save: d/x.ckpt.tmp: cannot write"));
  }
  EXPECT_THAT(files.list("d"), IsEmpty());
}

}  // namespace
}  // namespace tessera::checkpoint
