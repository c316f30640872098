#include "tessera/base/files/scratch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kMiB = int64_t{1} << 20;

class ScratchFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-scratch-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  ScratchFile file() const { return {folder_.string(), "the rows of a test", "name another directory"}; }

  std::filesystem::path folder_;
};

TEST_F(ScratchFiles, HoldWhatIsWrittenAndHaveNoName) {
  const auto memory = allocate_in_file(file(), 3 * kMiB);
  auto* bytes = static_cast<unsigned char*>(memory.get());
  for (const int64_t at : {int64_t{0}, kMiB + 5, 3 * kMiB - 1}) {
    EXPECT_EQ(bytes[at], 0);
    bytes[at] = 7;
    EXPECT_EQ(bytes[at], 7);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ScratchFiles, AreOpenToThisUserOnly) {
  const auto memory = allocate_in_file(file(), kMiB);
  const auto address = reinterpret_cast<uintptr_t>(memory.get());
  const auto mapped = fmt::format("/proc/self/map_files/{:x}-{:x}", address, address + kMiB);
  struct stat status {};
  if (::stat(mapped.c_str(), &status) != 0) GTEST_SKIP() << "only root looks at the files that a process has mapped";
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_GE(status.st_blocks * 512, kMiB) << "its blocks are not taken";
}

TEST_F(ScratchFiles, LieWhereAddressSpaceIsReserved) {
  void* reserved = ::mmap(nullptr, 4 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  map_in_file(file(), static_cast<std::byte*>(reserved) + kMiB, 2 * kMiB);
  std::memset(static_cast<std::byte*>(reserved) + kMiB, 1, 2 * kMiB);
  ::munmap(reserved, 4 * kMiB);
}

TEST_F(ScratchFiles, OfAProcessThatIsKilledLeaveNothing) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto memory = allocate_in_file(file(), kMiB);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ScratchFiles, AreRefusedWhereTheDiskHasNoRoom) {
  EXPECT_THAT([&] { allocate_in_file(file(), int64_t{1} << 45); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("the rows of a test need 32"), HasSubstr(folder_.string()),
                                           HasSubstr("of room"), HasSubstr("name another directory"))));
}

TEST_F(ScratchFiles, AreRefusedWhereNoFileCanBe) {
  auto nowhere = file();
  nowhere.directory += "/none";
  EXPECT_THAT([&] { allocate_in_file(nowhere, kMiB); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("/none\", which cannot be made: No such file"),
                                           HasSubstr("name another directory"))));
}

TEST(ScratchFileDirectories, OfMemoryAreKnown) {
  EXPECT_TRUE(is_in_memory("/dev/shm"));
  EXPECT_FALSE(is_in_memory("/proc"));
  EXPECT_FALSE(is_in_memory("/nowhere at all"));
}

}  // namespace
}  // namespace tessera
