// Claims about the file system that forgets what was not synced: the tests of checkpoints are worth what it is.
#include "tessera/testing/checkpoints/crash_file_system.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tessera::checkpoint {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct ADirectory : testing::Test {
  CrashFileSystem files;
  void SetUp() override { files.create_directories("d/tree"); }
  void write(const std::string& path, std::string_view text) {
    const auto file = files.create(path);
    file->append(bytes_of(text));
    file->sync();
  }
  std::unique_ptr<MemoryFileSystem> now(Unsynced unsynced, uint64_t seed = 0) const {
    return files.crash_state(files.num_operations(), unsynced, seed);
  }
};

TEST_F(ADirectory, ARemovedTreeIsGoneAndComesBackUntilItsDirectoryIsSynced) {
  write("d/tree/a", "1");
  write("d/tree/b", "2");
  files.sync_directory("d/tree");
  files.remove_directory_tree("d/tree");
  EXPECT_FALSE(now(Unsynced::kKept)->exists("d/tree/a"));
  EXPECT_EQ(now(Unsynced::kLost)->read_text("d/tree/b"), "2");
  bool one_without_the_other = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto state = now(Unsynced::kRandom, seed);
    one_without_the_other |= state->exists("d/tree/a") != state->exists("d/tree/b");
  }
  EXPECT_TRUE(one_without_the_other);
  files.sync_directory("d");
  EXPECT_FALSE(now(Unsynced::kLost)->exists("d/tree/b"));
}

TEST_F(ADirectory, AFileThatWasNeverSyncedDoesNotComeBackWithItsTreeGone) {
  write("d/tree/a", "1");
  files.remove_directory_tree("d/tree");
  files.sync_directory("d");
  EXPECT_FALSE(now(Unsynced::kKept)->exists("d/tree/a"));
  EXPECT_FALSE(now(Unsynced::kLost)->exists("d/tree/a"));
}

TEST_F(ADirectory, WhatIsWrittenOverSyncedBytesMayBeLost) {
  const auto file = files.create("d/x");
  const std::string before(100, 'o');
  const std::string after(100, 'n');
  file->append(bytes_of(before));
  file->sync();
  files.sync_directory("d");
  file->write_at(0, bytes_of(after));
  EXPECT_EQ(now(Unsynced::kLost)->read_text("d/x"), before);
  EXPECT_EQ(now(Unsynced::kKept)->read_text("d/x"), after);
  bool is_mixed = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = now(Unsynced::kRandom, seed)->read_text("d/x");
    is_mixed |= text.find('o') != std::string::npos && text.find('n') != std::string::npos;
  }
  EXPECT_TRUE(is_mixed);
}

}  // namespace
}  // namespace tessera::checkpoint
