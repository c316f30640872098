// F33: a kernel that writes one byte at a time and is interrupted in between. The linker puts __wrap_write in the place
// of write, __wrap_fsync in that of fsync.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tests/faults/storage.h"

extern "C" {
ssize_t __real_write(int fd, const void* bytes, size_t count);  // NOLINT: the linker's names
int __real_fsync(int fd);                                       // NOLINT

// How the kernel behaves: as usual (0), with so many interruptions before each byte, or failing for good (-1).
static int interruptions = 0;
static int interrupted = 0;
static int64_t calls = 0;

ssize_t __wrap_write(int fd, const void* bytes, size_t count) {  // NOLINT
  if (interruptions <= 0) return __real_write(fd, bytes, count);
  ++calls;
  if (interrupted++ < interruptions) {
    errno = EINTR;
    return -1;
  }
  interrupted = 0;
  return __real_write(fd, bytes, count > 0 ? 1 : 0);
}

int __wrap_fsync(int fd) {  // NOLINT
  if (interruptions < 0) {
    ++calls;
    errno = EIO;
    return -1;
  }
  if (interrupted++ < interruptions) {
    errno = EINTR;
    return -1;
  }
  interrupted = 0;
  return __real_fsync(fd);
}
}

namespace tessera::checkpoint::faults {
namespace {

struct Kernel : testing::Test {
  Kernel() { disk.remove_directory_tree(directory); }
  ~Kernel() override {
    interruptions = 0;
    disk.remove_directory_tree(directory);
  }
  FileSystem& disk = FileSystem::local();
  std::string directory = join_path(TESSERA_BINARY_DIR, fmt::format("short_writes_test.{}", ::getpid()));
};

TEST_F(Kernel, F33_ShortWritesAndInterruptions) {
  MemoryFileSystem expected;
  const auto reference = save_step(expected, 1, "d");
  for (const int count : {1, 3}) {
    interruptions = count;
    calls = 0;
    const auto path = save_step(disk, 1, directory);
    interruptions = 0;
    EXPECT_GT(calls, 1000) << "the shim was in the way";
    EXPECT_EQ(disk.read_text(path), expected.read_text(reference));
    EXPECT_EQ(recovered_step(disk, directory), 1);
  }
}

TEST_F(Kernel, F31_AFailedFsyncIsNotTriedAgain) {
  save_step(disk, 1, directory);
  interruptions = -1;
  calls = 0;
  EXPECT_THAT(checkpoint::message_of([&] { save_step(disk, 2, directory); }), testing::HasSubstr("Input/output error"));
  EXPECT_EQ(calls, 1) << "the system may have dropped the bytes, and would say that all is well";
  interruptions = 0;
  EXPECT_EQ(recovered_step(disk, directory), 1);
}

}  // namespace
}  // namespace tessera::checkpoint::faults
