// What storage may do to checkpoints, each fault by its number in docs/faults.md. Here: damage to files, failing
// operations, hostile contents; storage_processes_test.cc kills processes and fills disks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "tessera/base/random.h"
#include "tessera/checkpoint/convert/safetensors.h"
#include "tessera/checkpoint/convert/sources.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/checkpoint/lock/handed_on_lock.h"
#include "tessera/checkpoint/lock/waiting_lock.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/inspect.h"
#include "tessera/checkpoint/read/list.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/write/checkpoint_config.h"
#include "tessera/checkpoint/write/retention.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/testing/checkpoints/open_newest.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tests/faults/failpoints.h"
#include "tests/faults/storage.h"

namespace tessera::checkpoint::faults {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;
using testing::StartsWith;

// A directory of the real file system, empty at first, gone afterwards.
struct OnDisk : testing::Test {
  OnDisk() { FileSystem::local().remove_directory_tree(directory); }
  ~OnDisk() override { FileSystem::local().remove_directory_tree(directory); }

  std::vector<std::string> names() { return FileSystem::local().list(directory); }

  std::string directory = join_path(TESSERA_BINARY_DIR, fmt::format("storage_faults_test.{}", ::getpid()));
  FileSystem& disk = FileSystem::local();
};

std::vector<std::string> reasons(const Choice& choice) {
  std::vector<std::string> texts;
  for (const auto& skip : choice.skipped) texts.push_back(skip.reason);
  return texts;
}

// An operation that fails, at any place in a save, with any error: the user hears of it, what was there stays, nothing
// of the failed save is left, and the next one works.
TEST_F(OnDisk, F31_AFailingOperationFailsTheSaveAndNothingElse) {
  int failed = 0;
  for (const char* error : {"EIO", "ENOSPC", "EROFS"}) {
    for (const char* operation : {"create", "write", "fsync", "close", "rename"}) {
      for (int64_t nth = 1;; ++nth) {
        SCOPED_TRACE(fmt::format("{} {} {}", operation, error, nth));
        disk.remove_directory_tree(directory);
        save_step(disk, 1, directory);
        FailpointFileSystem files(disk, Failpoint{.operation = operation, .action = error, .nth = nth});
        const auto message = message_of([&] { save_step(files, 2, directory); });
        if (!files.has_fired()) {
          EXPECT_EQ(message, "no error");
          break;
        }
        ++failed;
        EXPECT_THAT(message, AllOf(StartsWith(path_of_step(2, directory)), HasSubstr("cannot")));
        // After the rename that commits, the new step is there in spite of the error.
        EXPECT_THAT(recovered_step(disk, directory), AnyOf(Optional(1), Optional(2)));
        for (const auto& name : names()) EXPECT_FALSE(name.ends_with(".tmp")) << name;
        save_step(disk, 3, directory);
        EXPECT_EQ(recovered_step(disk, directory), 3);
      }
    }
  }
  EXPECT_GE(failed, 3 * 9);
}

// fsync that fails may have dropped the bytes, and the next one then says that all is well.
TEST_F(OnDisk, F31_AfterAFailedFsyncTheFileIsWrittenAnew) {
  save_step(disk, 1, directory);
  FailpointFileSystem files(disk, parse_failpoint("fsync:EIO:1"));
  EXPECT_THAT(message_of([&] { save_step(files, 2, directory); }), HasSubstr("cannot fsync: Input/output error"));
  EXPECT_FALSE(disk.exists(path_of_step(2, directory) + ".tmp")) << "the doubtful bytes are gone";
  save_step(files, 2, directory);  // of the same failpoint, which has fired: written from memory again
  EXPECT_EQ(recovered_step(disk, directory), 2);
}

TEST_F(OnDisk, F30_HalfAWriteIsNoCheckpoint) {
  save_step(disk, 1, directory);
  for (int64_t nth = 1; nth <= 2; ++nth) {
    FailpointFileSystem files(disk, Failpoint{.operation = "write", .action = "half", .nth = nth});
    EXPECT_THAT(message_of([&] { save_step(files, 2, directory); }), HasSubstr("No space left on device"));
    EXPECT_EQ(recovered_step(disk, directory), 1);
    EXPECT_THAT(names(), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  }
}

TEST(Faults, F34_TruncatedNewestFile) {
  MemoryFileSystem files;
  save_step(files, 1);
  const auto path = save_step(files, 2);
  const auto whole = files.read_text(path);
  const auto checkpoint = load(files, path);
  struct Cut {
    size_t size;
    std::string value;  // that is no longer whole
  };
  std::vector<Cut> cuts;
  for (const auto& entry : checkpoint.entries()) cuts.push_back({static_cast<size_t>(entry.offset), entry.name});
  for (uint64_t draw = 0; draw < 200; ++draw) {
    const auto size = static_cast<size_t>(random_below({.seed = 34}, draw, static_cast<int64_t>(whole.size())));
    std::string value;
    for (const auto& entry : checkpoint.entries()) {
      if (static_cast<size_t>(entry.offset) <= size) value = entry.name;
    }
    cuts.push_back({size, value});
  }
  for (const auto& [size, value] : cuts) {
    SCOPED_TRACE(size);
    overwrite(files, path, whole.substr(0, size));
    EXPECT_EQ(recovered_step(files), 1);
    EXPECT_THAT(reasons(find_newest(files, "d", "CKP")),
                ElementsAre(AllOf(StartsWith(path), HasSubstr("the file is truncated"),
                                  HasSubstr(fmt::format("\"{}\" is the first value", value)))));
  }
}

TEST(Faults, F35_AFlippedBitNamesFileAndTensor) {
  MemoryFileSystem files;
  save_step(files, 1);
  const auto path = save_step(files, 2);
  const auto whole = files.read_text(path);
  const auto checkpoint = load(files, path);
  for (const auto& entry : checkpoint.entries()) {
    const auto first_byte = static_cast<size_t>(entry.pieces[0].data() - checkpoint.file().bytes().data());
    overwrite(files, path, with_flipped_bit(whole, 8 * first_byte + 3));
    EXPECT_EQ(recovered_step(files), 1);
    EXPECT_THAT(reasons(find_newest(files, "d", "CKP")),
                ElementsAre(AllOf(StartsWith(path), HasSubstr(fmt::format("the tensor \"{}\"", entry.name)),
                                  HasSubstr("is damaged"))));
  }
}

TEST(Faults, F35_WhatNothingVerifiesIsNotTakenForTheNewest) {
  MemoryFileSystem files;
  save_step(files, 1);
  const auto path = save_step(files, 2);
  const auto whole = files.read_text(path);
  const auto checkpoint = load(files, path);
  const auto first_byte =
      static_cast<size_t>(checkpoint.find("w")->pieces[0].data() - checkpoint.file().bytes().data());
  overwrite(files, path, with_flipped_bit(whole, 8 * first_byte + 3));
  files.remove(manifest_path(path));
  EXPECT_EQ(recovered_step(files), 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_newest(files, "d").info()->step, 1);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr(path + ": is newer, but has no manifest, so nothing shows whether it is whole; to take it, name "
                       "it; d/CKP-1_1.ckpt is taken instead"));
  EXPECT_FALSE(GlobalCheckpoint::open(files, path).info()) << "by its name it is read";
}

TEST(Faults, F36_AFileOfAnotherPlaceIsRefused) {
  const auto path = path_of_step(2);
  const auto with = [&](const std::function<void(FileSystem&)>& fault) {
    MemoryFileSystem files;
    save_step(files, 1);
    save_step(files, 2);
    save_step(files, 1, "other");
    save(files, {.path = "job/CKP-1_2.ckpt"}, entries_of_step(2),
         {.epoch = 1, .step_in_epoch = 2, .step = 2, .job_id = "another job"});
    const auto before = files.list("d").size();
    fault(files);
    EXPECT_EQ(recovered_step(files), 1);
    EXPECT_GE(files.list("d").size() + 1, before) << "nothing is deleted";
    return reasons(find_newest(files, "d", "CKP"));
  };
  const auto put = [&](FileSystem& files, const std::string& from, const std::string& to) {
    overwrite(files, to, files.read_text(from));
  };
  EXPECT_THAT(with([&](FileSystem& files) { files.remove(path); }),
              ElementsAre(path + ": is missing; " + manifest_path(path) + " describes it"));
  EXPECT_THAT(with([&](FileSystem& files) { overwrite(files, path, ""); }), ElementsAre(HasSubstr("has 0 bytes")));
  EXPECT_THAT(with([&](FileSystem& files) { put(files, path_of_step(1), path); }), ElementsAre(HasSubstr("crc32c is")))
      << "of another step";
  EXPECT_THAT(with([&](FileSystem& files) {
                put(files, path_of_step(1), path);
                put(files, manifest_path(path_of_step(1)), manifest_path(path));
              }),
              ElementsAre(HasSubstr("describes CKP-1_1.ckpt, not CKP-1_2.ckpt")))
      << "of another step, with its manifest";
  EXPECT_THAT(with([&](FileSystem& files) { put(files, "job/CKP-1_2.ckpt", path); }), ElementsAre(StartsWith(path)))
      << "of another job";
  EXPECT_THAT(with([&](FileSystem& files) { put(files, "job/CKP-1_2.ckpt.manifest", manifest_path(path)); }),
              ElementsAre(StartsWith(path)))
      << "under another job's manifest";
}

TEST(Faults, F36_AFileOfAnotherRankIsRefused) {
  const auto path = path_of_step(2);
  const auto with = [&](const std::function<void(FileSystem&)>& fault) {
    MemoryFileSystem files;
    for (int64_t step = 1; step <= 2; ++step) save_step_in_slices(files, step, 4, path_of_step(step));
    EXPECT_EQ(recovered_step(files), 2);
    fault(files);
    const auto left = files.list("d");
    EXPECT_EQ(recovered_step(files), 1);
    EXPECT_EQ(files.list("d"), left) << "nothing is deleted";
    return reasons(find_newest(files, "d", "CKP"));
  };
  const auto of_rank = [&](int64_t step, int rank) { return slice_file_path(path_of_step(step), rank); };
  EXPECT_THAT(with([&](FileSystem& files) { files.remove(of_rank(2, 3)); }),
              ElementsAre(HasSubstr(of_rank(2, 3) + ": is missing")));
  EXPECT_THAT(with([&](FileSystem& files) { overwrite(files, of_rank(2, 1), ""); }),
              ElementsAre(HasSubstr(of_rank(2, 1) + ": has 0 bytes")));
  EXPECT_THAT(with([&](FileSystem& files) {
                files.rename(of_rank(2, 1), "d/swap");
                files.rename(of_rank(2, 2), of_rank(2, 1));
                files.rename("d/swap", of_rank(2, 2));
              }),
              ElementsAre(StartsWith(of_rank(2, 1))))
      << "two ranks' files, one for the other";
  EXPECT_THAT(with([&](FileSystem& files) { overwrite(files, of_rank(2, 2), files.read_text(of_rank(1, 2))); }),
              ElementsAre(HasSubstr(of_rank(2, 2) + ": crc32c is")))
      << "of the step before";
}

// The file that names a checkpoint may go as any other of its files, and is missed by its manifest.
TEST(Faults, F36_ACheckpointThatHasLostItsFileIsNamedWhereverItsDirectoryIs) {
  MemoryFileSystem files;
  for (int64_t step = 1; step <= 2; ++step) save_step_in_slices(files, step, 3, path_of_step(step));
  const auto path = path_of_step(2);
  const auto reason = path + ": is missing; " + manifest_path(path) + " describes it";
  files.remove(path);
  const auto left = files.list("d");
  EXPECT_THAT(reasons(find_newest(files, "d", "CKP")), ElementsAre(reason));
  EXPECT_EQ(recovered_step(files), 1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_newest(files, "d").info()->step, 1);
  EXPECT_EQ(open_sources(files, "d").at(0).info()->step, 1) << "a conversion";
  const auto said = testing::internal::GetCapturedStderr();
  const auto first = said.find(reason + "; " + path_of_step(1) + " is taken instead");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_NE(said.find(reason, first + 1), std::string::npos) << said;

  const auto verified = verify_checkpoints(files, "d");
  ASSERT_EQ(verified.size(), 2U);
  EXPECT_EQ(verified[0].state, Verified::kYes);
  EXPECT_EQ(verified[1].state, Verified::kNo);
  EXPECT_EQ(verified[1].problem, reason);
  const auto list = list_checkpoints(files, "d");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1].problem, reason);
  EXPECT_EQ(list[1].num_files, 2) << "of the other ranks";
  EXPECT_GT(list[1].size_bytes, 0);

  // By its own name, or that of a file that is left of it.
  EXPECT_EQ(message_of([&] { load(files, path); }), reason);
  EXPECT_EQ(message_of([&] { GlobalCheckpoint::open(files, path); }), reason);
  EXPECT_EQ(message_of([&] { open_checkpoint(files, path); }), reason);
  for (const auto& named : {path, slice_file_path(path, 1)}) {
    EXPECT_EQ(verify_checkpoints(files, named).at(0).problem, reason);
    EXPECT_EQ(inspect_table(files, named).problem, reason);
    EXPECT_EQ(inspect_json(files, named).problem, reason);
  }

  files.remove(path_of_step(1));
  EXPECT_THROW(find_newest(files, "d", "CKP").require_usable(), NoUsableCheckpoint)
      << "which is not that none is there";
  EXPECT_EQ(files.list("d").size() + 1, left.size()) << "nothing is deleted";
}

// What was not committed, or is being removed, is no checkpoint that somebody misses.
TEST(Faults, F36_WhatIsLeftOfASaveOrARemovalIsNoDamage) {
  MemoryFileSystem files;
  save_step(files, 1);
  for (const char* name : {"CKP-1_2.ckpt.tmp", "CKP-1_2.ckpt.manifest.new", "CKP-1_3.ckpt.rank_1",
                           "CKP-1_4.ckpt.removing", "CKP-1_4.ckpt.manifest", "CKP-1_5.ckpt.manifest.new"}) {
    overwrite(files, join_path("d", name), "x");
  }
  EXPECT_THAT(reasons(find_newest(files, "d", "CKP")), ElementsAre());
  EXPECT_EQ(verify_checkpoints(files, "d").size(), 1U);
}

TEST(Faults, F36_AFolderOfARankWhoseOnlyCheckpointHasLostItsFileIsNamed) {
  MemoryFileSystem files;
  for (const char* folder : {"d/rank_0", "d/rank_1"}) save_step(files, 2, folder);
  save_step(files, 1, "d/rank_1");
  const auto path = path_of_step(2, "d/rank_0");
  files.remove(path);
  const auto choice = find_newest(files, "d", "CKP");
  EXPECT_EQ(choice.path, path_of_step(2, "d/rank_1")) << "it holds all values";
  EXPECT_THAT(reasons(choice), ElementsAre(path + ": is missing; " + manifest_path(path) + " describes it"));
}

TEST(Faults, F36_AWholeCheckpointOfAnotherTrainingIsPassedOver) {
  MemoryFileSystem files;
  const auto save_of = [&](const std::string& job_name, int64_t step, const std::string& directory) {
    return save(files, {.path = path_of_step(step, directory)}, entries_of_step(step),
                {.epoch = 1, .step_in_epoch = step, .step = step, .job_name = job_name});
  };
  save_of("", 1, "d");
  save_of("pictures", 2, "d");
  const auto foreign = save_of("texts", 3, "d");
  const auto names = files.list("d");
  const auto step_of = [&](const std::string& job_name) { return open_newest(files, "d", job_name).info()->step; };
  testing::internal::CaptureStderr();
  EXPECT_EQ(step_of("pictures"), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(foreign + ": is of the training \"texts\", not of \"pictures\""),
                    HasSubstr(path_of_step(2) + " is taken instead")));
  EXPECT_EQ(step_of("texts"), 3);
  EXPECT_EQ(step_of(""), 3) << "a training without a name";
  EXPECT_EQ(step_of("sounds"), 1) << "a checkpoint without a name";
  EXPECT_THAT(message_of([&] { GlobalCheckpoint::open(files, foreign, "pictures"); }),
              StartsWith(foreign + ": is of the training \"texts\""));
  EXPECT_EQ(files.list("d"), names) << "nothing is deleted";
}

// Ranks that save apart write a manifest each; those of one step of two jobs are not one checkpoint.
TEST(Faults, F36_ARanksWholeCheckpointOfAnotherJobIsRefused) {
  MemoryFileSystem files;
  const auto save_of = [&](const std::string& job_id, int64_t step, const std::string& root) {
    const auto messages = ThreadBarrier::run(2, [&](Barrier& barrier) {
      const auto path = path_of_step(step, join_path(root, fmt::format("rank_{}", barrier.rank())));
      const Region half{{barrier.rank()}, {1}};
      const auto value = Tensor::full({DType::kF32, {1}}, static_cast<double>(step));
      const std::vector<Slice> slices = {{"w", {DType::kF32, {2}}, half, value.view()}};
      save_slices(files, barrier, {.path = path, .together = ranks_of_directory(files, barrier, parent_path(path))},
                  slices, {.epoch = 1, .step_in_epoch = step, .step = step, .job_id = job_id, .world_size = 2});
    });
    EXPECT_THAT(messages, Each("no error"));
  };
  save_of("first", 1, "d");
  save_of("first", 2, "d");
  save_of("second", 2, "other");
  EXPECT_EQ(open_newest(files, "d").info()->step, 2);
  EXPECT_EQ(open_sources(files, "d").at(1).info()->step, 2);
  const auto path = path_of_step(2, "d/rank_1");
  for (const char* suffix : {"", ".manifest"}) {
    overwrite(files, path + suffix, files.read_text(path_of_step(2, "other/rank_1") + suffix));
  }
  const auto refusal = path + ": is of another checkpoint than " + path_of_step(2, "d/rank_0") +
                       ": step 2 of 2 ranks of job \"second\", not step 2 of 2 ranks of job \"first\"";
  EXPECT_EQ(message_of([&] { GlobalCheckpoint::open(files, path_of_step(2, "d/rank_0")); }), refusal);
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_newest(files, "d").info()->step, 1);
  EXPECT_EQ(open_sources(files, "d").at(1).info()->step, 1) << "a conversion";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(refusal));
}

TEST(Faults, F37_AllDamagedIsNotTheSameAsNone) {
  MemoryFileSystem files;
  files.create_directories("d");
  const auto none = find_newest(files, "d", "CKP");
  EXPECT_FALSE(none.found());
  EXPECT_NO_THROW(none.require_usable());
  for (int64_t step = 1; step <= 3; ++step) {
    const auto path = save_step(files, step);
    overwrite(files, path, with_flipped_bit(files.read_text(path), static_cast<size_t>(100 * step)));
  }
  const auto before = files.list("d");
  const auto damaged = find_newest(files, "d", "CKP");
  EXPECT_FALSE(damaged.found());
  EXPECT_THROW(damaged.require_usable(), NoUsableCheckpoint);
  const auto message = message_of([&] { damaged.require_usable(); });
  for (int64_t step = 1; step <= 3; ++step) EXPECT_THAT(message, HasSubstr(path_of_step(step) + ": crc32c is"));
  EXPECT_EQ(files.list("d"), before) << "nothing is deleted";
}

TEST(Faults, F38_OrderIsNumericAndTheManifests) {
  for (const auto& [older, newer] : {std::pair{9, 10}, {99, 100}, {2, 11}}) {
    MemoryFileSystem files;
    save_step(files, newer);
    save_step(files, older);
    EXPECT_EQ(recovered_step(files), newer);
  }
  MemoryFileSystem files;  // a name that says more than its manifest
  save(files, {.path = "d/CKP-1_0099.ckpt", .append_info = {Entry::number("step_num", int64_t{99})}},
       entries_of_step(99), info_of_step(99));
  save_step(files, 100);
  EXPECT_EQ(recovered_step(files), 100);
  MemoryFileSystem renamed;
  save(renamed, {.path = "d/CKP-1_7.ckpt", .append_info = {Entry::number("step_num", int64_t{70})}},
       entries_of_step(70), info_of_step(70));
  save_step(renamed, 8);
  EXPECT_EQ(recovered_step(renamed), 70) << "the manifest says how far training was, not the name";
}

TEST(Faults, F39_TwoJobsInOneDirectory) {
  MemoryFileSystem files;
  {
    const DirectoryLock first(files, "d", "job-a");
    EXPECT_EQ(first.generation(), 1);
    EXPECT_NO_THROW(DirectoryLock(files, "other", "job-b"));
    const DirectoryLock shared(files, "d", "job-a");  // of the same process
    EXPECT_EQ(shared.generation(), 1);
    // As a process in another container may see it: the same host, the same number, but not this process.
    const auto written = files.read_text(directory_lock_path("d"));
    auto text = written;
    const auto at = text.find("\"process_id\":\"") + 14;
    overwrite(files, directory_lock_path("d"), text.replace(at, 32, std::string(32, '0')));
    EXPECT_THAT(message_of([&] { const DirectoryLock second(files, "d", "job-b"); }),
                HasSubstr("d: job \"job-a\" (process " + std::to_string(::getpid())));
    // As one sees it that was written by an earlier version.
    overwrite(files, directory_lock_path("d"), R"({"job_id":"job-a","host":"h1","pid":4711,"generation":1})");
    EXPECT_THAT(message_of([&] { const DirectoryLock second(files, "d", "job-b"); }),
                HasSubstr("d: job \"job-a\" (process 4711 on h1) writes checkpoints here"));
    // As one sees it whose holder has not written yet who it is.
    overwrite(files, directory_lock_path("d"), "");
    EXPECT_THAT(message_of([&] { const DirectoryLock second(files, "d", "job-b"); }),
                AllOf(HasSubstr("d: another job, whose lock does not say which, writes checkpoints here"),
                      HasSubstr("give each job a directory of its own")));
    overwrite(files, directory_lock_path("d"), written);
  }
  EXPECT_FALSE(files.exists(directory_lock_path("d"))) << "a holder that ends in good order leaves nothing";
  // What a dead one left is taken over.
  overwrite(files, directory_lock_path("d"), R"({"job_id":"job-a","host":"h1","pid":4711,"generation":3})");
  const DirectoryLock next(files, "d", "job-b");
  EXPECT_EQ(next.generation(), 4);
  ASSERT_TRUE(next.taken_over_from());
  EXPECT_EQ(next.taken_over_from()->job_id, "job-a");
}

TEST_F(OnDisk, F39_ALockThatAnotherJobHasTakenAndNotYetWrittenIsSeen) {
  const auto path = directory_lock_path(directory);
  DirectoryLock first(disk, directory, "job-a");
  disk.remove(path);
  const auto other = disk.try_lock(path);  // as a second job does before it writes who it is
  EXPECT_THAT(message_of([&] { first.keep(); }), HasSubstr("another job, whose lock does not say which,"));
}

TEST_F(OnDisk, F09_ALaterGenerationOfAJobTakesTheLockOfAnEarlierOneWhichLosesIt) {
  disk.create_directories(directory);
  const auto path = directory_lock_path(directory);
  const auto lock_of_another_process = [&](int64_t generation) {
    auto lock = disk.try_lock(path);
    overwrite(
        disk, path,
        fmt::format(R"({{"job_id":"job","host":"h","pid":1,"generation":1,"process_id":"p","job_generation":{}}})",
                    generation));
    return lock;
  };
  {
    const auto stopped = lock_of_another_process(2);
    for (const int64_t generation : {0, 1, 2}) {
      EXPECT_THAT(message_of([&] { const DirectoryLock older(disk, directory, "job", generation); }),
                  HasSubstr("writes checkpoints here; this one cannot"));
    }
    EXPECT_THAT(message_of([&] { const DirectoryLock other(disk, directory, "other", 3); }), HasSubstr("job \"job\""));
    const auto saving = join_path(directory, "job-1_5.ckpt.saving");
    auto amid_a_save = std::make_unique<WaitingLock>(disk, saving);
    DirectoryLock newer(disk, directory, "job", 3);
    const WaitingLock of_the_newer(disk, saving);  // which does not wait
    EXPECT_FALSE(amid_a_save->is_held());
    amid_a_save.reset();
    EXPECT_TRUE(of_the_newer.is_held());
    EXPECT_EQ(newer.taken_over_from()->process_id, "p");
    EXPECT_FALSE(stopped->is_at(path));
    newer.keep();
    EXPECT_THAT(message_of([&] { const DirectoryLock other(disk, directory, "other"); }), HasSubstr("job \"job\""));
  }
  // The older process, when it wakes.
  DirectoryLock woken(disk, directory, "job", 1);
  disk.remove(path);
  const auto newest = lock_of_another_process(2);
  EXPECT_THAT(message_of([&] { woken.keep(); }), HasSubstr("writes checkpoints here; this one cannot"));
}

TEST_F(OnDisk, F39_ALockThatSomebodyRemovesIsTakenAgainOrAnotherJobsIsSeen) {
  const auto path = directory_lock_path(directory);
  auto first = std::make_unique<DirectoryLock>(disk, directory, "job-a");
  first->keep();
  disk.create(path);  // its text is gone, as on a disk that was full, and it is held all the same
  first->keep();
  disk.remove_directory_tree(directory);
  first->keep();
  EXPECT_THAT(message_of([&] { const DirectoryLock second(disk, directory, "job-b"); }), HasSubstr("job \"job-a\""));
  disk.remove(path);
  DirectoryLock second(disk, directory, "job-b");
  EXPECT_THAT(message_of([&] { first->keep(); }),
              AllOf(HasSubstr(directory + ": job \"job-b\""), HasSubstr("writes checkpoints here; this one cannot")));
  first.reset();
  EXPECT_TRUE(disk.exists(path)) << "it is the other job's";
  second.keep();
}

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

TEST_F(OnDisk, F39_OnlyWritersOfADirectoryCanOpenItsLock) {
  disk.create_directories(directory);
  struct Case {
    unsigned directory;
    unsigned lock;
  };
  for (const auto& [mode, expected] : {Case{0700, 0600}, Case{0755, 0600}, Case{0775, 0660}, Case{0777, 0666}}) {
    ASSERT_EQ(::chmod(directory.c_str(), mode), 0);
    const auto path = directory_lock_path(directory);
    disk.create(path, 0644);  // left by an earlier version
    const DirectoryLock lock(disk, directory, "job");
    EXPECT_EQ(mode_of(path), expected);
  }
}

// What the action throws in a process whose files may have so many bytes (ulimit -f), or "no error".
std::string message_within(rlim_t file_bytes, const std::function<void()>& action) {
  rlimit before{};
  EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{file_bytes, before.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto text = message_of(action);
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  return text;
}

TEST_F(OnDisk, F30_AFileBeyondTheLimitOfItsProcessFailsTheSave) {
  save_step(disk, 1, directory);
  const auto message = message_within(100, [&] { save_step(disk, 2, directory); });
  EXPECT_EQ(message, path_of_step(2, directory) + ".tmp: cannot write: File too large");
  EXPECT_THAT(names(), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"));
  EXPECT_EQ(recovered_step(disk, directory), 1);
}

TEST_F(OnDisk, F39_ALockThatAProcessHandsOnIsTakenByTheProgramThatItBeginsAndByNobodyElse) {
  disk.create_directories(directory);
  const auto path = directory_lock_path(directory);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  // As the program before has left it.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  const auto text = fmt::format(
      R"({{"job_id":"job","host":"{}","pid":{},"generation":4,"process_id":"of the program before","job_generation":2}})",
      host, ::getpid());
  overwrite(disk, path, text);  // the same file
  const auto number_of_file = [&] {
    struct stat file {};
    EXPECT_EQ(::stat(path.c_str(), &file), 0);
    return file.st_ino;
  };
  const auto is_refused = [&] {
    const auto message = message_of([&] { const DirectoryLock other(disk, directory, "other"); });
    return message.find(fmt::format("job \"job\" (process {} on {}) writes checkpoints here", ::getpid(), host)) !=
           std::string::npos;
  };
  const auto outlives = [&] { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0; };
  const auto before = number_of_file();
  EXPECT_TRUE(is_refused());
  EXPECT_TRUE(is_lock_handed_on(path));
  {
    DirectoryLock next(disk, directory, "job", 3);
    EXPECT_EQ(number_of_file(), before) << "it was free at no time";
    EXPECT_EQ(next.generation(), 4);
    EXPECT_FALSE(next.taken_over_from());
    EXPECT_FALSE(outlives()) << "programs that this one starts do not have it";
    EXPECT_FALSE(is_lock_handed_on(path));
    next.keep();
    EXPECT_TRUE(is_refused());
    EXPECT_TRUE(hand_on_lock(path)) << "to the program after this one";
    EXPECT_TRUE(outlives());
  }
  EXPECT_FALSE(disk.exists(path));
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  EXPECT_FALSE(hand_on_lock(path)) << "there is none";
}

// The checkpoint's lock, on which the next save would wait for ever, and the directory's, which would refuse the job.
TEST_F(OnDisk, F30_AFileBeyondTheLimitOfItsProcessHoldsNoLock) {
  const std::function<void(int64_t)> saves[] = {
      [&](int64_t step) { save_step(disk, step, directory); },
      [&](int64_t step) { save_step_in_slices(disk, step, 3, path_of_step(step, directory)); }};
  for (const auto& save : saves) {
    disk.remove_directory_tree(directory);
    const auto message = message_within(200, [&] {
      const DirectoryLock lock(disk, directory, "job-a");
      save(1);
    });
    EXPECT_THAT(message, HasSubstr("cannot write: File too large"));
    EXPECT_THAT(names(), ElementsAre());
    const DirectoryLock lock(disk, directory, "job-b");
    EXPECT_FALSE(lock.taken_over_from());
    save(1);
    EXPECT_EQ(recovered_step(disk, directory), 1);
  }
}

// It ends before it has said who it is.
TEST_F(OnDisk, F30_ALockBeyondTheLimitOfItsProcessIsNotHeld) {
  const auto message = message_within(20, [&] { const DirectoryLock lock(disk, directory, "job-a"); });
  EXPECT_EQ(message, directory_lock_path(directory) + ": cannot write: File too large");
  EXPECT_EQ(message_of([&] { const DirectoryLock lock(disk, directory, "job-b"); }), "no error");
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(OnDisk, FilesAreAsTheUmaskHasThemAndEncryptedOnesTheirOwnersAlone) {
  for (const auto& [umask, expected] : {std::pair{0002U, 0664U}, {0022U, 0644U}, {0077U, 0600U}}) {
    const auto before = ::umask(umask);
    const auto path = save_step(disk, 1, directory);
    save(disk, {.path = path_of_step(2, directory), .encryption = {.key = "0123456789abcdef"}}, entries_of_step(2), {});
    ::umask(before);
    for (const auto& file : {path, manifest_path(path)}) EXPECT_EQ(mode_of(file), expected) << file;
    const auto encrypted = path_of_step(2, directory);
    for (const auto& file : {encrypted, manifest_path(encrypted)}) EXPECT_EQ(mode_of(file), 0600U) << file;
  }
}

TEST_F(OnDisk, FilesOfSeveralRanksAreAsTheUmaskHasThemAndEncryptedOnesTheirOwnersAlone) {
  const auto save_encrypted = [&](Barrier& barrier) {
    const auto row = Tensor::full({DType::kF32, {1}}, 2);
    const std::vector<Slice> slices = {{"w", {DType::kF32, {3}}, Region{{barrier.rank()}, {1}}, row.view()}};
    save_slices(disk, barrier,
                {.path = path_of_step(2, directory), .together = {0, 1, 2}, .encryption = {.key = "0123456789abcdef"}},
                slices, info_of_step(2));
  };
  for (const auto& [umask, expected] : {std::pair{0002U, 0664U}, {0022U, 0644U}, {0077U, 0600U}}) {
    const auto before = ::umask(umask);
    save_step_in_slices(disk, 1, 3, path_of_step(1, directory));
    const auto messages = ThreadBarrier::run(3, save_encrypted);
    ::umask(before);
    EXPECT_THAT(messages, Each("no error"));
    EXPECT_EQ(names().size(), 2 * 4U) << "of each: the checkpoint, two ranks' slices and the manifest";
    for (const auto& name : names()) {
      EXPECT_EQ(mode_of(join_path(directory, name)), name.starts_with("CKP-1_2.") ? 0600U : expected) << name;
    }
  }
}

// The values of a conversion are those of the job that saved them.
TEST_F(OnDisk, FilesOfAConversionAreAsTheUmaskHasThem) {
  for (const auto& [umask, expected] : {std::pair{0002U, 0664U}, {0022U, 0644U}, {0077U, 0600U}}) {
    disk.remove_directory_tree(directory);
    const auto exported = join_path(directory, "w.safetensors");
    const auto imported = join_path(directory, "w.ckpt");
    const auto before = ::umask(umask);
    const auto path = save(disk, {.path = path_of_step(1, directory)}, entries_of_step(1), info_of_step(1));
    auto files = transform_checkpoints(disk, path, join_path(directory, "whole"), "out").files;
    export_safetensors(disk, path, exported);
    import_safetensors(disk, exported, imported);
    ::umask(before);
    ASSERT_EQ(files.size(), 1U);
    files.push_back(imported);
    for (const auto& file : files) {
      EXPECT_EQ(mode_of(file), expected) << file;
      EXPECT_EQ(mode_of(manifest_path(file)), expected) << file;
    }
    EXPECT_EQ(mode_of(exported), expected);
    EXPECT_EQ(mode_of(join_path(directory, "whole/.conversion")), expected);
  }
}

// Somebody cuts the file short after it was opened: that is an error, not the end of the process.
TEST_F(OnDisk, F34_AFileThatIsCutShortWhileItIsRead) {
  const auto path = path_of_step(1, directory);
  const Tensor large = Tensor::full({DType::kF32, {1 << 20}}, 1);
  save(disk, {.path = path}, std::vector{Entry("w", large), Entry("note", std::string(5000, 'n'))},
       {.epoch = 1, .step_in_epoch = 1, .step = 1});
  const auto whole = disk.read_text(path);
  const std::string refusal = path + ": became shorter while it was read, or the disk cannot give all of it";
  for (const int64_t size : {0, 1, 4096, 100'000, 4'000'000}) {
    SCOPED_TRACE(size);
    overwrite(disk, path, whole);
    const auto checkpoint = load(disk, path);
    ASSERT_EQ(::truncate(path.c_str(), size), 0);
    EXPECT_EQ(message_of([&] { checkpoint.find("w")->read(); }), refusal);
    EXPECT_EQ(message_of([&] { checkpoint.find("w")->crc32c(); }), refusal);
    EXPECT_EQ(message_of([&] { checkpoint.find("note")->read_text(); }), refusal);
  }
  overwrite(disk, path, whole);
  EXPECT_TRUE(bit_equal(load(disk, path).find("w")->read(), large)) << "the next is read as ever";
}

TEST(Faults, F39_ALockFileThatSaysNothingIsTakenOver) {
  for (const char* content : {"", "{", "[1]", R"({"job_id":1})"}) {
    MemoryFileSystem files;
    files.create_directories("d");
    overwrite(files, directory_lock_path("d"), content);
    EXPECT_EQ(DirectoryLock(files, "d", "job").generation(), 1) << content;
  }
}

TEST(Faults, F40_ManifestsThatReachOutOfTheirDirectory) {
  MemoryFileSystem files;
  save_step(files, 1);
  const auto path = save_step(files, 2);
  const auto manifest = parse_manifest(files.read_text(manifest_path(path)), "m");
  for (const char* name : {"../CKP-1_2.ckpt", "/etc/passwd", "..", ".", "", "a/b", "/dev/zero"}) {
    auto edited = manifest;
    edited.files[0].name = name;
    overwrite(files, manifest_path(path), to_text(edited));
    EXPECT_EQ(recovered_step(files), 1) << name;
    EXPECT_THAT(reasons(find_newest(files, "d", "CKP")), ElementsAre(HasSubstr("must be the plain name of a file")));
  }
}

TEST_F(OnDisk, F40_LinksPipesAndDevicesAreNoCheckpoints) {
  save_step(disk, 1, directory);
  save_step(disk, 2, directory);
  const auto outside = directory + ".outside";
  const auto path = path_of_step(2, directory);
  disk.rename(path, outside);
  const auto expect_refused = [&](const std::string& reason) {
    EXPECT_EQ(recovered_step(disk, directory), 1);
    EXPECT_THAT(reasons(find_newest(disk, directory, "CKP")), ElementsAre(AllOf(StartsWith(path), HasSubstr(reason))));
    disk.remove(path);
  };
  std::filesystem::create_symlink(outside, path);
  expect_refused("is a link to " + disk.real_path(outside));
  std::filesystem::create_symlink("/dev/zero", path);
  expect_refused("is a link to /dev/zero");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refused("not a regular file");  // and does not wait for a writer
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  EXPECT_EQ(recovered_step(disk, directory), 1);
  disk.remove_directory_tree(path);
  disk.remove(outside);
}

TEST_F(OnDisk, F40_ARanksFileThatIsALinkIsRefused) {
  const auto path = path_of_step(1, directory);
  save_step_in_slices(disk, 1, 4, path);
  const auto outside = directory + ".outside";
  disk.rename(slice_file_path(path, 2), outside);
  std::filesystem::create_symlink(outside, slice_file_path(path, 2));
  EXPECT_EQ(recovered_step(disk, directory), std::nullopt);
  EXPECT_THAT(message_of([&] { GlobalCheckpoint::open(disk, path); }),
              AllOf(StartsWith(slice_file_path(path, 2)), HasSubstr("is a link to")));
  disk.remove(outside);
}

TEST(Faults, F42_RetentionKeepsWhatIsVerified) {
  MemoryFileSystem files;
  for (int64_t step = 1; step <= 2; ++step) save_step(files, step);
  const auto path = save_step(files, 3);
  overwrite(files, path, with_flipped_bit(files.read_text(path), 77));
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 2}));
  EXPECT_THAT(retention.apply(), ElementsAre()) << "of three only two are verified";
  EXPECT_EQ(recovered_step(files), 2);
  save_step(files, 4);
  EXPECT_THAT(retention.apply(), ElementsAre("CKP-1_1.ckpt"));
  EXPECT_TRUE(files.exists(path)) << "damaged ones are kept for whoever wants to look";
  files.remove(path_of_step(4));
  EXPECT_EQ(recovered_step(files), 2);
}

TEST(Faults, F42_ACheckpointThatCannotBeRemovedKeepsNoOthers) {
  MemoryFileSystem disk;
  for (int64_t step = 1; step <= 4; ++step) save_step(disk, step);
  FailpointFileSystem files(disk, Failpoint{.operation = "rename", .action = "EROFS", .suffix = "CKP-1_1.ckpt"});
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 1}));
  retention.tidy();
  EXPECT_TRUE(disk.exists(path_of_step(1)));
  EXPECT_FALSE(disk.exists(path_of_step(2)) || disk.exists(path_of_step(3)));
  EXPECT_EQ(recovered_step(disk), 4);
}

TEST(Faults, F42_AMarkThatCannotBeRemovedKeepsNoOthers) {
  MemoryFileSystem disk;
  for (int64_t step = 1; step <= 3; ++step) save_step(disk, step);
  disk.write_atomically("d/CKP-1_1.ckpt.removing", "of an earlier removal");
  FailpointFileSystem files(disk, Failpoint{.operation = "remove", .action = "EROFS", .suffix = ".removing"});
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 1}));
  retention.tidy();
  EXPECT_EQ(recovered_step(disk), 3);
  EXPECT_FALSE(disk.exists(path_of_step(2)));
}

TEST_F(OnDisk, F42_ARemovalThatFailsIsMadeUpForLater) {
  for (int64_t nth = 1; nth <= 4; ++nth) {
    disk.remove_directory_tree(directory);
    for (int64_t step = 1; step <= 4; ++step) save_step(disk, step, directory);
    FailpointFileSystem files(disk, Failpoint{.operation = "remove", .action = "EIO", .nth = nth});
    Retention retention(files, directory, "CKP", validated({.keep_checkpoint_max = 2}));
    EXPECT_THAT(message_of([&] { retention.apply(); }), HasSubstr("cannot remove"));
    EXPECT_EQ(recovered_step(disk, directory), 4);
    EXPECT_EQ(verify(disk, path_of_step(3, directory)).state, Verified::kYes);
    retention.apply();
    save_step_keeping(disk, 5, 2, directory);
    EXPECT_EQ(verify(disk, path_of_step(4, directory)).state, Verified::kYes);
    EXPECT_EQ(recovered_step(disk, directory), 5);
  }
}

}  // namespace
}  // namespace tessera::checkpoint::faults
