// Ranges of files: the right bytes, wherever they begin and end, by way of the page cache or past it.
#include "tessera/base/files/range_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kSize = DiskBlock::kBytes + 12'345;

class ALocalFile : public testing::Test {
 protected:
  ALocalFile() {
    content_.resize(kSize);
    uint32_t next = 1;
    for (auto& byte : content_) {
      next = next * 1664525U + 1013904223U;
      byte = static_cast<std::byte>(next >> 24);
    }
    disk_.create_directories(directory_);
    const auto file = disk_.create(path_);
    file->append(content_);
    file->sync();
    file->close();
  }
  ~ALocalFile() override { disk_.remove_directory_tree(directory_); }

  // False where its file system has nothing but the page cache.
  bool leaves_page_cache() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    return open_local_ranges(path_)->is_on_disk(0, kSize);
  }
  void expect_content(std::span<const std::byte> bytes, int64_t offset) const {
    ASSERT_LE(offset + std::ssize(bytes), kSize);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), content_.begin() + offset)) << "at " << offset;
  }

  FileSystem& disk_ = FileSystem::local();
  std::string directory_ = join_path(TESSERA_BINARY_DIR, fmt::format("range_reader_test.{}", ::getpid()));
  std::string path_ = join_path(directory_, "file");
  std::vector<std::byte> content_;
};

TEST_F(ALocalFile, GivesBlocksAtAnyPlaceInMemoryAndOnTheDisk) {
  constexpr int64_t kPage = DiskBlock::kAlignment;
  const std::pair<int64_t, int64_t> ranges[] = {
      {0, 1},         {0, kPage}, {1, kPage},     {kPage - 1, 2},       {5, DiskBlock::kBytes - 5},
      {kSize - 1, 1}, {kSize, 0}, {3 * kPage, 0}, {kSize - 8192, 8192}, {kSize - kPage - 7, 9}};
  for (const bool on_disk : {false, true}) {
    const auto file = disk_.open_ranges(path_);
    DiskBlock block;
    for (const auto& [offset, size] : ranges) {
      if (on_disk) leaves_page_cache();
      const auto bytes = file->read_block(offset, size, block);
      EXPECT_EQ(std::ssize(bytes), size);
      expect_content(bytes, offset);
    }
  }
}

TEST_F(ALocalFile, SaysWhatLiesOnTheDiskAndABlockDoesNotChangeThat) {
  if (!leaves_page_cache()) GTEST_SKIP() << "this file system has nothing but the page cache";
  const auto file = open_local_ranges(path_);
  DiskBlock block;
  expect_content(file->read_block(1, DiskBlock::kBytes / 2, block), 1);
  EXPECT_TRUE(file->is_on_disk(0, DiskBlock::kBytes));
  std::vector<std::byte> all(kSize);
  file->read(0, all);
  expect_content(all, 0);
  EXPECT_FALSE(file->is_on_disk(0, kSize));
}

TEST_F(ALocalFile, ThatWasCutShortSaysWhereItEnds) {
  const auto file = open_local_ranges(path_);
  ASSERT_EQ(::truncate(path_.c_str(), 10'000), 0);
  DiskBlock block;
  expect_content(file->read_block(0, 9'000, block), 0);
  for (const int64_t offset : {9'000, 10'000, 20'000}) {
    const auto message =
        fmt::format("{}: ends at byte {}; it was longer when it was opened", path_, std::max<int64_t>(offset, 10'000));
    EXPECT_THAT([&] { file->read_block(offset, 9'000, block); }, ThrowsMessage<IoError>(message));
  }
}

// Sizes of files around those at which they begin to be large and at which blocks are full; pieces that fit neither.
TEST(AWritableLocalFile, HoldsWhatIsAppendedInPiecesOfAnySize) {
  FileSystem& disk = FileSystem::local();
  const std::string path = fmt::format("local_writable_file_test.{}", ::getpid());
  constexpr int64_t kBlock = DiskBlock::kBytes;
  std::vector<std::byte> content(5 * kBlock + 77);
  uint32_t next = 1;
  for (auto& byte : content) {
    next = next * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(next >> 24);
  }
  const auto expect_content = [&](int64_t size, const std::string& when) {
    ASSERT_EQ(disk.size_bytes(path), size) << when;
    std::vector<std::byte> read(static_cast<size_t>(size));
    disk.open_ranges(path)->read(0, read);
    EXPECT_TRUE(std::equal(read.begin(), read.end(), content.begin())) << when;
  };
  for (const int64_t size : {2 * kBlock, 2 * kBlock + 1, 3 * kBlock - 1, 3 * kBlock, 5 * kBlock + 77}) {
    for (const int64_t piece : {kBlock + 4097, int64_t{65'537}, 5 * kBlock}) {
      for (const bool is_synced : {false, true}) {
        const auto file = disk.create(path);
        for (int64_t at = 0; at < size; at += piece) {
          file->append(
              std::span(content).subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(piece, size - at))));
          if (!is_synced) continue;
          file->sync();
          ASSERT_EQ(disk.size_bytes(path), std::min(at + piece, size)) << "what was appended is there";
        }
        if (is_synced) expect_content(size, "after sync");
        file->close();
        expect_content(size, fmt::format("{} bytes in pieces of {}", size, piece));
      }
    }
  }
  disk.create(path)->append(std::span(content));
  expect_content(std::ssize(content), "a file that nobody closed");
  disk.remove(path);
}

TEST_F(ALocalFile, ThatIsLargeDoesNotFillThePageCacheWhenItIsWritten) {
  if (!leaves_page_cache()) GTEST_SKIP() << "this file system has nothing but the page cache";
  const auto path = directory_ + "/large";
  const auto file = disk_.create(path);
  for (int i = 0; i < 6; ++i) file->append(std::span(content_).first(DiskBlock::kBytes));
  file->sync();
  const auto reader = disk_.open_ranges(path);
  for (const int64_t block : {2, 3, 4, 5}) {
    EXPECT_TRUE(reader->is_on_disk(block * DiskBlock::kBytes, DiskBlock::kBytes)) << block;
  }
}

TEST(RangeReader, OfOtherFileSystemsGivesBlocksToo) {
  MemoryFileSystem files;
  files.create("f")->append("0123456789");
  const auto file = files.open_ranges("f");
  DiskBlock block;
  const auto bytes = file->read_block(3, 4, block);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "3456");
  EXPECT_FALSE(file->is_on_disk(0, 10));
  EXPECT_THAT([&] { file->read_block(8, 3, block); }, ThrowsMessage<IoError>(HasSubstr("f: ends at byte 10")));
}

TEST(DiskBlock, HasRoomForWhatAlignmentAdds) {
  EXPECT_TRUE(DiskBlock::fits(0, DiskBlock::kBytes));
  EXPECT_TRUE(DiskBlock::fits(DiskBlock::kAlignment, DiskBlock::kBytes));
  EXPECT_FALSE(DiskBlock::fits(1, DiskBlock::kBytes));
  EXPECT_TRUE(DiskBlock::fits(1, DiskBlock::kBytes - 1));
  EXPECT_FALSE(DiskBlock::fits(0, DiskBlock::kBytes + 1));
}

}  // namespace
}  // namespace tessera
