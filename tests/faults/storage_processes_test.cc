// Faults that need processes: killed in mid commit, in mid conversion, full and read-only disks, a limit on memory.
// Numbers as in docs/faults.md. What needs a mount of its own is skipped where that is not permitted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "tessera/base/strings.h"
#include "tessera/checkpoint/convert/diff.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tests/faults/processes.h"
#include "tests/faults/storage.h"

namespace tessera::checkpoint::faults {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

struct Processes : testing::Test {
  Processes() {
    disk.remove_directory_tree(root);
    disk.create_directories(root);
  }
  ~Processes() override { disk.remove_directory_tree(root); }
  std::string in(const std::string& name) const { return join_path(root, name); }

  FileSystem& disk = FileSystem::local();
  std::string root = join_path(TESSERA_BINARY_DIR, fmt::format("storage_processes_test.{}", ::getpid()));
};

// Every operation on the disk between the first and the last of a commit is a place to die at.
void kill_at_every_operation(const std::string& command, const std::string& directory) {
  FileSystem& disk = FileSystem::local();
  int64_t kills = 0;
  bool seen[3] = {};
  for (const char* action : {"crash", "after"}) {
    for (int64_t nth = 1;; ++nth) {
      SCOPED_TRACE(fmt::format("any:{}:{}", action, nth));
      disk.remove_directory_tree(directory);
      ASSERT_EQ(run_job({command, directory, "1", "1", "1"}).exit_code, 0);
      const auto ended = run_job({command, directory, "2", "2", "1"}, fmt::format("any:{}:{}", action, nth));
      const auto found = recovered_step(disk, directory);
      if (ended.signal == 0) {
        ASSERT_EQ(ended.exit_code, 0);
        ASSERT_EQ(found, 2);
        break;
      }
      ASSERT_EQ(ended.signal, SIGKILL);
      ASSERT_THAT(found, AnyOf(Optional(1), Optional(2)));
      seen[*found] = true;
      ++kills;
      ASSERT_EQ(run_job({command, directory, "3", "3", "1"}).exit_code, 0);
      ASSERT_EQ(recovered_step(disk, directory), 3);
      EXPECT_THAT(disk.list(directory), testing::Each(testing::StartsWith("CKP-1_3.ckpt"))) << "nothing is left over";
    }
  }
  EXPECT_TRUE(seen[1] && seen[2]);
  EXPECT_GE(kills, 2 * 12);
  std::cout << kills << " cases, 0 failures: processes killed in a commit, " << command << "\n";
}

TEST_F(Processes, F28_KilledAtEveryOperationOfACommit) { kill_at_every_operation("save", in("d")); }

TEST_F(Processes, F28_FourRanksKilledAtEveryOperationOfACommit) { kill_at_every_operation("slices", in("d")); }

void fill(const std::string& path) {
  const auto file = FileSystem::local().create(path);
  const auto write_for_ever = [&] {
    while (true) file->append(std::string(4096, 'x'));
  };
  EXPECT_THROW(write_for_ever(), IoError);
}

TEST_F(Processes, F30_ADiskThatFillsUpDuringASave) {
  const auto directory = in("d");
  disk.create_directories(directory);
  in_private_tmpfs(directory, 64 << 10, [&] {
    save_step(disk, 1, directory);
    fill(in("d/filler"));
    EXPECT_THAT(message_of([&] { save_step(disk, 2, directory); }), HasSubstr("No space left on device"));
    EXPECT_THAT(disk.list(directory), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest", "filler"));
    EXPECT_EQ(recovered_step(disk, directory), 1);
    disk.remove(in("d/filler"));
    save_step(disk, 3, directory);
    EXPECT_EQ(recovered_step(disk, directory), 3);
  });
}

TEST_F(Processes, F32_ADiskThatBecomesReadOnly) {
  const auto directory = in("d");
  disk.create_directories(directory);
  in_private_tmpfs(directory, 1 << 20, [&] {
    save_step(disk, 1, directory);
    remount_read_only(directory, true);
    EXPECT_THAT(message_of([&] { save_step(disk, 2, directory); }), HasSubstr("Read-only file system"));
    EXPECT_EQ(recovered_step(disk, directory), 1);
    remount_read_only(directory, false);
    save_step(disk, 2, directory);
    EXPECT_EQ(recovered_step(disk, directory), 2);
  });
}

TEST_F(Processes, F39_TheLockEndsWithItsProcess) {
  const auto directory = in("d");
  HoldingJob first(directory, "job-a");
  ASSERT_EQ(first.generation(), "1");
  EXPECT_THAT(message_of([&] { const DirectoryLock second(disk, directory, "job-b"); }),
              HasSubstr(fmt::format("job \"job-a\" (process {} on ", first.pid())));
  {
    const HoldingJob refused(directory, "job-b");
    EXPECT_EQ(refused.generation(), "");
  }
  first.kill();  // by SIGKILL: it cannot clean up
  HoldingJob second(directory, "job-b");
  EXPECT_EQ(second.generation(), "2");
  second.let_go();
  EXPECT_FALSE(disk.exists(directory_lock_path(directory)));
  EXPECT_EQ(DirectoryLock(disk, directory, "job-c").generation(), 1);
}

// Two containers may be the same process of the same host by their own lights.
TEST_F(Processes, F39_JobsInTwoContainersAreTwoJobs) {
  const auto directory = in("d");
  HoldingJob first(directory, "job-a", /*in_container=*/true);
  ContainerJob second({"work", directory, "job-b", "1", "3", "2"});
  const auto ended = second.wait();
  if (!ended) GTEST_SKIP() << "containers need the privilege to make namespaces (root)";
  ASSERT_EQ(first.generation(), "1");
  EXPECT_EQ(ended->exit_code, 1) << "refused";
  EXPECT_THAT(disk.list(directory), ElementsAre(".tessera-lock"));
  first.let_go();
  EXPECT_EQ(ContainerJob({"work", directory, "job-b", "1", "3", "2"}).wait()->exit_code, 0);
  EXPECT_EQ(recovered_step(disk, directory), 3);
}

// 50 trials with TESSERA_TEST_FULL=1.
TEST_F(Processes, F39_TwoContainersDamageNothing) {
  const auto directory = in("d");
  int64_t refused = 0;
  const int64_t trials = sample_size(50);
  for (int64_t trial = 0; trial < trials; ++trial) {
    disk.remove_directory_tree(directory);
    ContainerJob first({"work", directory, "job-a", "1", "20", "3"});
    ContainerJob second({"work", directory, "job-b", "1", "20", "3"});
    for (auto* job : {&first, &second}) {
      const auto ended = job->wait();
      if (!ended) GTEST_SKIP() << "containers need the privilege to make namespaces (root)";
      ASSERT_EQ(ended->signal, 0);
      refused += ended->exit_code == 1;
    }
    EXPECT_EQ(recovered_step(disk, directory), 20);
    for (const auto& name : disk.list(directory)) {
      if (!name.ends_with(".ckpt")) continue;
      EXPECT_EQ(verify(disk, join_path(directory, name)).state, Verified::kYes) << name;
    }
  }
  EXPECT_LE(refused, trials) << "one of them writes";
  std::cout << trials << " trials, 0 damaged checkpoints: two containers, one directory; refused " << refused << "\n";
}

ParameterLayout split_rows(const std::string& name, int64_t num_ranks) {
  return {.name = name, .device_matrix = {num_ranks}, .tensor_map = {{0}, {}}};
}

// "w" of so many rows of 1024 f32, in rows over two ranks, and strategies for two, four and three ranks.
struct Conversions : Processes {
  void SetUp() override {
    for (const int64_t ranks : {2, 4}) {
      write_strategy_file(disk, in(fmt::format("{}.ckpt", ranks)), {.layouts = {split_rows("w", ranks)}});
    }
  }
  void save_source(int64_t rows) {
    for (int64_t rank = 0; rank < 2; ++rank) {
      Tensor part(DType::kF32, {rows / 2, 1024});
      for (int64_t i = 0; i < part.num_elements(); ++i) {
        part.values<float>()[static_cast<size_t>(i)] = static_cast<float>((rank * part.num_elements() + i) % 65'521);
      }
      save(disk, {.path = in(fmt::format("src/rank_{}/CKP-1_4.ckpt", rank))}, std::vector{Entry("w", part)},
           {.epoch = 1, .step_in_epoch = 4, .step = 4});
    }
  }
  std::vector<std::string> arguments(const std::string& to) {
    return {"convert", in("src"), in(to), in("2.ckpt"), in("4.ckpt")};
  }
  bool is_right(const std::string& to) {
    return diff_checkpoints(disk, in("src"), in(to), in("2.ckpt"), in("4.ckpt")).differences.empty();
  }
};

TEST_F(Conversions, F49_KilledAnywhereAndRunAgain) {
  save_source(8);
  int64_t kills = 0;
  for (int64_t nth = 1;; ++nth) {
    SCOPED_TRACE(nth);
    disk.remove_directory_tree(in("dst"));
    disk.remove_directory_tree(in("dst.partial"));
    const auto ended = run_job(arguments("dst"), fmt::format("any:crash:{}", nth));
    if (ended.signal == 0) {
      ASSERT_EQ(ended.exit_code, 0);
      break;
    }
    ++kills;
    // The destination appears when it is complete, or not at all.
    ASSERT_TRUE(!disk.exists(in("dst")) || is_right("dst"));
    ASSERT_EQ(run_job(arguments("dst")).exit_code, 0);
    ASSERT_TRUE(is_right("dst"));
    ASSERT_FALSE(disk.exists(in("dst.partial")));
  }
  EXPECT_GE(kills, 40);
  std::cout << kills << " cases, 0 failures: processes killed in a conversion\n";
}

// 4 GiB with TESSERA_TEST_FULL=1.
TEST_F(Conversions, F50_UnderALimitOnMemory) {
  constexpr int64_t kRowBytes = 4096;
  constexpr rlim_t kLimit = 64 << 20;
  const int64_t bytes = sample_size(int64_t{4} << 30);
  save_source(bytes / kRowBytes / 8 * 8);
  const auto ended = in_child([&] {
    // What a process may write to: its heap, its stacks and private mappings.
    const rlimit limit{kLimit, kLimit};
    ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
    transform_checkpoints(disk, in("src"), in("dst"), "out", in("2.ckpt"), in("4.ckpt"));
  });
  EXPECT_EQ(ended.exit_code, 0) << "signal " << ended.signal;
  EXPECT_TRUE(is_right("dst"));
}

TEST_F(Conversions, F51_ADestinationThatIsTooSmallIsRefusedUpFront) {
  save_source(256);  // 1 MiB
  disk.create_directories(in("small"));
  const auto before = disk.list(in("src/rank_0"));
  in_private_tmpfs(in("small"), 256 << 10, [&] {
    const auto message =
        message_of([&] { transform_checkpoints(disk, in("src"), in("small/dst"), "out", in("2.ckpt"), in("4.ckpt")); });
    EXPECT_THAT(message, HasSubstr("the conversion writes 1"));
    EXPECT_THAT(message, HasSubstr("there is room for"));
    EXPECT_THAT(disk.list(in("small")), ElementsAre()) << "nothing was begun";
    EXPECT_EQ(disk.list(in("src/rank_0")), before);
  });
}

}  // namespace
}  // namespace tessera::checkpoint::faults
