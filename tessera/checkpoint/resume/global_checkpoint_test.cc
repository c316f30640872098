// Reading any region of a checkpoint of any layout: the right values, no other bytes, and no damage that goes
// unnoticed.
#include "tessera/checkpoint/resume/global_checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tessera/base/files/crc32c.h"
#include "tessera/base/random.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/threads/crc_sum.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/testing/checkpoints/open_newest.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(CrcSum, OfPiecesInAnyOrderIsTheChecksumOfTheWhole) {
  std::string text(10'000, '\0');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(random_below({.seed = 1, .stream = 0, .step = 0}, i, 256));
  const auto all = bytes_of(text);
  const auto size = std::ssize(all);
  for (const auto& ends : {std::vector<size_t>{10'000}, {1, 10'000}, {1, 2, 4097, 9'999, 10'000}, {0, 5'000, 10'000}}) {
    CrcSum odd;
    CrcSum even;
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto piece = all.subspan(begin, ends[i] - begin);
      (i % 2 == 0 ? even : odd).add(piece, static_cast<int64_t>(begin), size);
      begin = ends[i];
    }
    odd.add(CrcSum(even.num_bytes(), even.crc32c()));
    EXPECT_EQ(odd.num_bytes(), size);
    EXPECT_EQ(odd.crc32c(), crc32c(all));
  }
  EXPECT_EQ(CrcSum().crc32c(), crc32c({}));
}

// Element i of a value is i, so that a region shows where it comes from.
Tensor counting(const Type& type) {
  Tensor values(DType::kF64, type.shape);
  const auto at = values.values<double>();
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<double>(i);
  return values.cast(type.dtype);
}

struct Grid {
  int rows;
  int columns;
  int size() const { return rows * columns; }
};

// `w` is split by rows and columns; `b`, `m`, `s` by rows, columns, not at all.
std::vector<HeldValue> values_on(const Grid& grid) {
  const mesh::Mesh mesh({{"rows", grid.rows}, {"columns", grid.columns}});
  return {{"w", {DType::kF32, {64, 8192}}, mesh::Layout{mesh, {{{0}, {1}}, {}}}},
          {"b", {DType::kBF16, {8192}}, mesh::Layout{mesh, {{{0}}, {}}}},
          {"m", {DType::kF32, {40, 4100}}, mesh::Layout{mesh, {{{}, {1}}, {}}}},
          {"s", {DType::kI64, {}}, std::nullopt}};
}

// Path of each rank's checkpoint: one directory, or folders rank_N.
using PathOf = std::function<std::string(int rank)>;
std::string together(int) { return "d/CKP-1_4.ckpt"; }
std::string apart(int rank) { return fmt::format("d/rank_{}/CKP-1_4.ckpt", rank); }

void save_on(FileSystem& files, const Grid& grid, const PathOf& path_of, int64_t step = 4) {
  const auto values = values_on(grid);
  const auto messages = ThreadBarrier::run(grid.size(), [&](Barrier& barrier) {
    const auto path = path_of(barrier.rank());
    const auto ranks = ranks_of_directory(files, barrier, parent_path(path));
    const auto regions = written_regions(values, ranks, barrier.rank(), /*min_shared_bytes=*/4096);
    std::vector<Slice> slices;
    std::vector<Tensor> owners;
    for (size_t i = 0; i < values.size(); ++i) {
      owners.push_back(counting(values[i].type));
      slices.push_back({values[i].name, values[i].type, regions[i], {}});
      if (regions[i]) slices.back().value = view_of(owners.back().view(), *regions[i]);
    }
    save_slices(files, barrier, {.path = path, .together = ranks}, slices,
                {.epoch = 1, .step_in_epoch = step, .step = step, .world_size = grid.size()});
  });
  ASSERT_THAT(messages, Each("no error"));
}

// What each rank of the grid threw; reports into `reports`.
std::vector<std::string> load_on(FileSystem& files, const Grid& grid, const PathOf& path_of,
                                 std::vector<GlobalCheckpoint::Report>& reports) {
  reports.assign(static_cast<size_t>(grid.size()), {});
  return ThreadBarrier::run(grid.size(), [&](Barrier& barrier) {
    const int rank = barrier.rank();
    const auto checkpoint = GlobalCheckpoint::open(files, path_of(rank));
    std::vector<GlobalCheckpoint::Wanted> wanted;
    std::vector<Tensor> pieces;
    for (const auto& value : values_on(grid)) {
      const auto region = held_region(value, rank);
      if (!region) continue;
      pieces.emplace_back(Type{value.type.dtype, region->shape});
      wanted.push_back({value.name, *region, pieces.back().view(), is_first_holder(value, rank)});
    }
    reports[static_cast<size_t>(rank)] = checkpoint.read(wanted, &barrier);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto whole = counting({wanted[i].to.dtype, checkpoint.find(wanted[i].name)->shape});
      EXPECT_TRUE(bit_equal(pieces[i], Tensor::copy_of(view_of(whole.view(), wanted[i].region)))) << wanted[i].name;
    }
  });
}

TEST(GlobalCheckpoint, AnyGridReadsTheBytesOfAnyOtherThatItNeedsAndTogetherTheyAreVerified) {
  const Grid grids[] = {{1, 1}, {2, 4}, {3, 1}, {1, 5}, {2, 3}};
  for (const auto& from : grids) {
    for (const PathOf& path_of : {PathOf(together), PathOf(apart)}) {
      MemoryFileSystem files;
      save_on(files, from, path_of);
      for (const auto& to : grids) {
        SCOPED_TRACE(fmt::format("{}x{} to {}x{}", from.rows, from.columns, to.rows, to.columns));
        std::vector<GlobalCheckpoint::Report> reports;
        // Each rank names the file of some rank of the job that saved.
        const auto path = [&](int rank) { return path_of(rank % from.size()); };
        ASSERT_THAT(load_on(files, to, path, reports), Each("no error"));
        for (const auto& report : reports) {
          EXPECT_LE(static_cast<double>(report.bytes_read), 1.05 * static_cast<double>(report.bytes_wanted));
          EXPECT_GT(report.slices_verified, 0);
          EXPECT_EQ(report.slices_unverified, 0);
        }
      }
    }
  }
}

// Says of all its files that they lie on the disk, and counts how they are read.
class OnDisk : public MemoryFileSystem {
 public:
  std::unique_ptr<RangeReader> open_ranges(const std::string& path) override {
    return std::make_unique<Reader>(*this, MemoryFileSystem::open_ranges(path));
  }

  int num_blocks = 0;
  int64_t num_bytes_else = 0;  // that came in no block
  int most_in_flight = 0;
  // Until so many are read at a time, or a minute is over.
  int wait_for_in_flight = 1;

 private:
  class Reader : public RangeReader {
   public:
    Reader(OnDisk& owner, std::unique_ptr<RangeReader> file) : owner_(owner), file_(std::move(file)) {}
    void read(int64_t offset, std::span<std::byte> to) const override {
      const std::lock_guard lock(owner_.mutex_);
      owner_.num_bytes_else += std::ssize(to);
      file_->read(offset, to);
    }
    bool is_on_disk(int64_t, int64_t) const override { return true; }
    std::span<const std::byte> read_block(int64_t offset, int64_t size, DiskBlock& block) const override {
      std::unique_lock lock(owner_.mutex_);
      ++owner_.num_blocks;
      owner_.most_in_flight = std::max(owner_.most_in_flight, ++owner_.in_flight_);
      owner_.changed_.notify_all();
      owner_.changed_.wait_for(lock, std::chrono::seconds(60),
                               [&] { return owner_.most_in_flight >= owner_.wait_for_in_flight; });
      --owner_.in_flight_;
      return file_->read_block(offset, size, block);
    }

   private:
    OnDisk& owner_;
    std::unique_ptr<RangeReader> file_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  int in_flight_ = 0;
};

TEST(GlobalCheckpoint, AnyGridReadsAnyOtherFromTheDisk) {
  const Grid grids[] = {{1, 1}, {2, 4}, {3, 1}, {1, 5}};
  for (const auto& from : grids) {
    OnDisk files;
    save_on(files, from, together);
    for (const auto& to : grids) {
      SCOPED_TRACE(fmt::format("{}x{} to {}x{}", from.rows, from.columns, to.rows, to.columns));
      std::vector<GlobalCheckpoint::Report> reports;
      ASSERT_THAT(load_on(files, to, together, reports), Each("no error"));
      for (const auto& report : reports) {
        EXPECT_LE(static_cast<double>(report.bytes_read), 1.05 * static_cast<double>(report.bytes_wanted));
        EXPECT_EQ(report.slices_unverified, 0);
      }
    }
    EXPECT_GT(files.num_blocks, 0);
  }
}

TEST(CrcSum, OfAFileIsTheChecksumOfItsBytes) {
  for (const size_t size : {0, 1, 1 << 20, 3'500'000}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * i >> 7);
    MemoryFileSystem files;
    overwrite(files, "f", text);
    EXPECT_EQ(crc32c_of_file(*files.open_ranges("f"), static_cast<int64_t>(size)), crc32c(bytes_of(text)));
  }
}

// Small values beside large ones, 16 MB together; each element of "N" is N.
void save_many(FileSystem& files) {
  std::vector<Entry> entries;
  for (int i = 0; i < 32; ++i) {
    entries.emplace_back(fmt::format("{}", i), Tensor::full({DType::kF32, {i % 4 == 0 ? 500'000 : 100}}, i));
  }
  save(files, {.path = "d/many.ckpt"}, entries, {});
}

std::vector<GlobalCheckpoint::Wanted> all_of(const GlobalCheckpoint& checkpoint, std::vector<Tensor>& values) {
  std::vector<GlobalCheckpoint::Wanted> wanted;
  for (const auto& entry : checkpoint.entries()) {
    values.emplace_back(entry.type());
    wanted.push_back({entry.name, Region::whole(entry.shape), values.back().view()});
  }
  return wanted;
}

TEST(GlobalCheckpoint, ReadsTheDiskInLargeBlocksSeveralAtATime) {
  OnDisk files;
  files.wait_for_in_flight = 3;
  save_many(files);
  const auto checkpoint = GlobalCheckpoint::open(files, "d/many.ckpt");
  std::vector<Tensor> values;
  const auto wanted = all_of(checkpoint, values);
  for (const bool verifies_only : {false, true}) {
    files.num_blocks = files.most_in_flight = 0;
    const auto report = verifies_only ? checkpoint.verify(wanted) : checkpoint.read(wanted);
    EXPECT_EQ(report.slices_verified, 32);
    EXPECT_EQ(report.bytes_read, report.bytes_wanted);
    EXPECT_GE(files.most_in_flight, 3);
    EXPECT_LE(files.num_blocks * DiskBlock::kBytes, 4 * report.bytes_wanted / 3);
    EXPECT_EQ(files.num_bytes_else, 0);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(bit_equal(values[i], Tensor::full(values[i].type(), static_cast<double>(std::stoi(wanted[i].name)))));
  }
}

TEST(Verify, ReadsTheDiskItself) {
  OnDisk files;
  save_many(files);
  EXPECT_EQ(verify(files, "d/many.ckpt").state, Verified::kYes);
  EXPECT_EQ(files.num_bytes_else, files.size_bytes("d/many.ckpt"));
}

TEST(GlobalCheckpoint, OfAFewColumnsOnTheDiskNoBlocksAreRead) {
  OnDisk files;
  save(files, {.path = "d/w.ckpt"}, std::vector<Entry>{{"w", counting({DType::kF32, {256, 4096}})}}, {});
  const auto checkpoint = GlobalCheckpoint::open(files, "d/w.ckpt");
  const Region columns{{0, 512}, {256, 256}};
  const Tensor piece(Type{DType::kF32, columns.shape});
  const GlobalCheckpoint::Wanted wanted{"w", columns, piece.view()};
  EXPECT_EQ(checkpoint.read({&wanted, 1}).bytes_read, piece.size_bytes());
  EXPECT_EQ(files.num_bytes_else, piece.size_bytes());
  EXPECT_EQ(files.num_blocks, 0);
  const auto whole = counting({DType::kF32, {256, 4096}});
  EXPECT_TRUE(bit_equal(piece, Tensor::copy_of(view_of(whole.view(), columns))));
}

// A directory of the machine's disk.
class Disk : public testing::Test {
 protected:
  Disk() { files_.create_directories(directory_); }
  ~Disk() override { files_.remove_directory_tree(directory_); }

  // What is synced leaves the page cache. False where the file system has nothing else.
  bool forget(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    return files_.open_ranges(path)->is_on_disk(0, files_.size_bytes(path));
  }

  FileSystem& files_ = FileSystem::local();
  std::string directory_ = join_path(TESSERA_BINARY_DIR, fmt::format("global_checkpoint_test.{}", ::getpid()));
  std::string path_ = join_path(directory_, "net.ckpt");
};

TEST_F(Disk, OpeningReadsTheHeadersOnlyAndReadingLeavesThePageCacheAsItWas) {
  std::vector<Entry> entries;
  for (int i = 0; i < 3; ++i) entries.emplace_back(fmt::format("{}", i), counting({DType::kF32, {1 << 20}}));
  save(files_, {.path = path_}, entries, {});
  if (!forget(path_)) GTEST_SKIP() << "this file system has nothing but the page cache";
  const auto checkpoint = GlobalCheckpoint::open(files_, path_);
  std::vector<Tensor> values;
  const auto wanted = all_of(checkpoint, values);
  EXPECT_EQ(checkpoint.verify(wanted).slices_verified, 3);
  EXPECT_EQ(checkpoint.read(wanted).slices_verified, 3);
  for (const auto& value : values) EXPECT_TRUE(bit_equal(value, entries[0].owner));
  const auto source = SourceFile::open(files_, path_);
  for (const auto& tensor : source.tensors()) {
    EXPECT_TRUE(files_.open_ranges(path_)->is_on_disk(tensor.pieces[0].offset + tensor.size_bytes / 2, 1));
  }
}

TEST_F(Disk, AFileThatIsCutShortBetweenOpeningAndReadingIsNamed) {
  save(files_, {.path = path_}, std::vector<Entry>{{"w", counting({DType::kF32, {3 << 20}})}}, {});
  const auto checkpoint = GlobalCheckpoint::open(files_, path_);
  std::vector<Tensor> values;
  const auto wanted = all_of(checkpoint, values);
  ASSERT_EQ(::truncate(path_.c_str(), 5'000'000), 0);
  for (const bool on_disk : {false, true}) {
    if (on_disk) forget(path_);
    EXPECT_THAT(message_of([&] { checkpoint.read(wanted); }),
                AllOf(HasSubstr(path_), HasSubstr("; it was longer when it was opened")));
  }
}

TEST(GlobalCheckpoint, ADirectoryStandsForItsNewestCheckpoint) {
  MemoryFileSystem files;
  save_on(files, {2, 1}, apart);
  save_on(
      files, {2, 1}, [](int rank) { return fmt::format("d/rank_{}/CKP-1_3.ckpt", rank); }, 3);
  save_on(files, {3, 1}, together);
  EXPECT_EQ(open_newest(files, "d").path(), "d/rank_0/CKP-1_4.ckpt");
  // Of which not all ranks have theirs is none.
  files.remove("d/rank_1/CKP-1_4.ckpt");
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_newest(files, "d").path(), "d/rank_0/CKP-1_3.ckpt");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("d/rank_1/CKP-1_4.ckpt: is missing"));
  // Whatever rank has lost its part.
  files.remove_directory_tree("d/rank_0");
  EXPECT_THAT(message_of([&] { open_newest(files, "d"); }),
              HasSubstr("d/rank_0/CKP-1_3.ckpt: is missing; d/rank_1/CKP-1_3.ckpt holds only one rank's part"));
  files.remove_directory_tree("d/rank_1");
  EXPECT_EQ(open_newest(files, "d").path(), "d/CKP-1_4.ckpt");
}

TEST(GlobalCheckpoint, AFlippedBitIsNoticedByAllRanksThoughEachReadsAPart) {
  MemoryFileSystem files;
  save_on(files, {1, 1}, together);
  const auto whole = files.read_text("d/CKP-1_4.ckpt");
  const auto content = SourceFile::open(files, "d/CKP-1_4.ckpt").find("w")->pieces[0];
  for (const int64_t at : {int64_t{0}, content.size / 2, content.size - 1}) {
    auto damaged = whole;
    damaged[static_cast<size_t>(content.offset + at)] ^= 4;
    overwrite(files, "d/CKP-1_4.ckpt", damaged);
    std::vector<std::string> messages = ThreadBarrier::run(4, [&](Barrier& barrier) {
      const auto checkpoint = GlobalCheckpoint::open(files, "d/CKP-1_4.ckpt");
      const auto value = values_on({2, 2})[0];
      const auto region = *held_region(value, barrier.rank());
      const Tensor piece(Type{value.type.dtype, region.shape});
      const GlobalCheckpoint::Wanted wanted{"w", region, piece.view()};
      checkpoint.read({&wanted, 1}, &barrier);
    });
    EXPECT_THAT(messages, Each(AllOf(HasSubstr("d/CKP-1_4.ckpt"), HasSubstr("\"w\" is damaged"))));
  }
}

// As it happens to values of modules in modules: of such names, messages show the beginning.
TEST(GlobalCheckpoint, AFlippedBitIsNoticedInValuesOfNamesThatMessagesShowAlike) {
  const std::string common(210, 'n');
  for (const auto& [a, b] : {std::pair(common + ".a", common + ".b"), std::pair<std::string, std::string>("\n", "\t"),
                             std::pair<std::string, std::string>("w\n4 0 [0:4,0:2] 1 w", "w")}) {
    for (const int num_ranks : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} and {}, {} ranks", a, b, num_ranks));
      MemoryFileSystem files;
      const auto value = counting({DType::kF32, {4, 2}});
      save(files, {.path = "x.ckpt"}, std::vector<Entry>{{a, value}, {b, value}}, {});
      const auto whole = files.read_text("x.ckpt");
      const auto read = [&](Barrier& barrier) {
        const auto checkpoint = GlobalCheckpoint::open(files, "x.ckpt");
        const int64_t rows = 4 / num_ranks;
        const Region region{{rows * barrier.rank(), 0}, {rows, 2}};
        const Tensor piece(Type{DType::kF32, region.shape});
        const std::vector<GlobalCheckpoint::Wanted> wanted = {{a, region, piece.view()}, {b, region, piece.view()}};
        const auto report = checkpoint.read(wanted, &barrier, Unverified::kRefused);
        EXPECT_EQ(report.slices_verified, 2);
      };
      EXPECT_THAT(ThreadBarrier::run(num_ranks, read), Each("no error"));
      for (const auto& name : {a, b}) {
        auto damaged = whole;
        damaged[static_cast<size_t>(SourceFile::open(files, "x.ckpt").find(name)->pieces[0].offset)] ^= 4;
        overwrite(files, "x.ckpt", damaged);
        EXPECT_THAT(ThreadBarrier::run(num_ranks, read), Each(HasSubstr("is damaged")));
        overwrite(files, "x.ckpt", whole);
      }
    }
  }
}

TEST(GlobalCheckpoint, WhatNoChecksumTellsIsRefusedByWhoWantsAllOfIt) {
  MemoryFileSystem files;
  save_on(files, {1, 1}, together);
  const Region half{{0, 0}, {32, 8192}};
  EXPECT_THAT(ThreadBarrier::run(2,
                                 [&](Barrier& barrier) {
                                   const auto checkpoint = GlobalCheckpoint::open(files, "d/CKP-1_4.ckpt");
                                   const Tensor piece(Type{DType::kF32, half.shape});
                                   GlobalCheckpoint::Wanted wanted{"w", half, piece.view()};
                                   wanted.is_first = barrier.rank() == 0;
                                   EXPECT_EQ(checkpoint.read({&wanted, 1}, &barrier).slices_unverified, 1);
                                   checkpoint.read({&wanted, 1}, &barrier, Unverified::kRefused);
                                 }),
              Each(HasSubstr("d/CKP-1_4.ckpt: 1048576 of the 2097152 bytes of [0:64,0:8192] \"w\" were read, so its "
                             "checksum cannot be compared")));
}

TEST(GlobalCheckpoint, VerifyFindsDamageAndWritesNothing) {
  MemoryFileSystem files;
  save_on(files, {2, 2}, together);
  const auto before = counting({DType::kF32, {64, 8192}});
  const Tensor destination = Tensor::full(before.type(), 7);
  const GlobalCheckpoint::Wanted wanted{"w", Region::whole(before.shape()), destination.view()};
  const auto report = GlobalCheckpoint::open(files, "d/CKP-1_4.ckpt").verify({&wanted, 1});
  EXPECT_EQ(report.bytes_read, before.size_bytes());
  EXPECT_EQ(report.slices_verified, 4);
  EXPECT_TRUE(bit_equal(destination, Tensor::full(before.type(), 7)));

  const std::string path = "d/CKP-1_4.ckpt.rank_2";
  const auto content = SourceFile::open_all(files, "d/CKP-1_4.ckpt")[2].find("w")->pieces[0];
  auto damaged = files.read_text(path);
  damaged[static_cast<size_t>(content.offset + content.size / 2)] ^= 4;
  overwrite(files, path, damaged);
  EXPECT_THAT(message_of([&] {
                GlobalCheckpoint::open(files, "d/CKP-1_4.ckpt").verify({&wanted, 1});
              }),
              AllOf(HasSubstr(path), HasSubstr("\"w\" is damaged")));
}

TEST(GlobalCheckpoint, AMissingRankIsNamedWhenItsValuesAreWanted) {
  MemoryFileSystem files;
  save_on(files, {3, 1}, apart);
  files.remove("d/rank_1/CKP-1_4.ckpt");
  const auto checkpoint = GlobalCheckpoint::open(files, apart(2));
  EXPECT_EQ(checkpoint.read_whole("s").num_elements(), 1);
  EXPECT_THAT(message_of([&] { checkpoint.read_whole("w"); }),
              AllOf(HasSubstr("holds no [22:43,0:8192] of \"w\""), HasSubstr("d/rank_1/CKP-1_4.ckpt is missing")));
}

TEST(GlobalCheckpoint, FilesOfDifferentStepsAreRefused) {
  MemoryFileSystem files;
  save_on(files, {2, 1}, apart);
  MemoryFileSystem others;
  save_on(others, {3, 1}, apart);
  for (const char* suffix : {"", ".manifest"}) {
    overwrite(files, apart(1) + suffix, others.read_text(apart(1) + suffix));
  }
  EXPECT_THAT(
      message_of([&] { GlobalCheckpoint::open(files, apart(0)); }),
      HasSubstr("d/rank_1/CKP-1_4.ckpt: is of another checkpoint than d/rank_0/CKP-1_4.ckpt: step 4 of 3 ranks"));
}

TEST(GlobalCheckpoint, APathWithNothingThereSaysWhatIsNearIt) {
  MemoryFileSystem files;
  save(files, {.path = "d/net-1_4.ckpt"}, std::vector<Entry>{{"w", counting({DType::kF32, {4, 2}})}}, {});
  const auto refusal_of = [&](const std::string& path) {
    return message_of([&] { GlobalCheckpoint::open(files, path); });
  };
  const std::string words =
      ": cannot open: No such file or directory; what is named must be a checkpoint, as net-3_100.ckpt, or a directory "
      "that holds some";
  EXPECT_EQ(refusal_of("d/other"), "d/other" + words);
  EXPECT_EQ(refusal_of("none/net-1_4.ckpt"), "none/net-1_4.ckpt" + words);
  EXPECT_EQ(refusal_of("d/net-1_4"), "d/net-1_4" + words + "; did you mean d/net-1_4.ckpt?");
  EXPECT_EQ(refusal_of("d/net-1_5.ckpt"), "d/net-1_5.ckpt" + words + "; did you mean d/net-1_4.ckpt?");
}

TEST(GlobalCheckpoint, OneRanksPartByItselfSaysWhereTheOthersMustBe) {
  MemoryFileSystem files;
  save_on(files, {2, 1}, [](int rank) { return fmt::format("elsewhere/{}/x.ckpt", rank); });
  EXPECT_THAT(message_of([&] { GlobalCheckpoint::open(files, "elsewhere/0/x.ckpt"); }),
              HasSubstr("must lie in folders rank_0 to rank_1"));
}

TEST(GlobalCheckpoint, AFileWithoutAManifestLoadsWithAWarning) {
  MemoryFileSystem files;
  save(files, {.path = "x.ckpt"}, std::vector<Entry>{{"w", counting({DType::kF32, {4, 2}})}}, {});
  files.remove("x.ckpt.manifest");
  testing::internal::CaptureStderr();
  const auto checkpoint = GlobalCheckpoint::open(files, "x.ckpt");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no manifest"));
  EXPECT_FALSE(checkpoint.info());
  EXPECT_TRUE(bit_equal(checkpoint.read_whole("w"), counting({DType::kF32, {4, 2}})));
}

// As a program of another kind may have written it.
TEST(GlobalCheckpoint, ByteOtherThanZeroIsTrue) {
  MemoryFileSystem files;
  save(files, {.path = "x.ckpt"}, std::vector<Entry>{{"mask", Tensor::of<bool>({4}, {true, false, true, true})}}, {});
  files.remove("x.ckpt.manifest");
  auto text = files.read_text("x.ckpt");
  const auto content = SourceFile::open_all(files, "x.ckpt")[0].find("mask")->pieces[0];
  text[static_cast<size_t>(content.offset)] = 2;
  overwrite(files, "x.ckpt", text);
  const auto expected = Tensor::of<uint8_t>({4}, {1, 0, 1, 1});
  const auto checkpoint = GlobalCheckpoint::open(files, "x.ckpt");
  for (const DType dtype : {DType::kBool, DType::kU8}) {
    Tensor found(dtype, {4});
    const GlobalCheckpoint::Wanted wanted{"mask", Region::whole(found.shape()), found.view()};
    checkpoint.read({&wanted, 1});
    EXPECT_TRUE(std::ranges::equal(found.bytes(), expected.bytes())) << to_string(dtype);
  }
}

}  // namespace
}  // namespace tessera::checkpoint
