// Files that are larger than their format has them, of which the disk holds nothing: they are refused by their size,
// before anybody goes through their zeros.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/sets/cifar10.h"
#include "tessera/data/sets/image_folder.h"
#include "tessera/data/sets/mnist.h"

namespace tessera::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class SparseFiles : public testing::Test {
 protected:
  SparseFiles() : directory_(join_path(testing::TempDir(), fmt::format("tessera-sparse-{}", ::getpid()))) {
    FileSystem::local().create_directories(join_path(directory_, "class"));
  }
  ~SparseFiles() override { FileSystem::local().remove_directory_tree(directory_); }

  // Zeros behind `begin`.
  void write(const std::string& name, const std::string& begin, int64_t size_bytes) const {
    const auto path = join_path(directory_, name);
    const auto file = FileSystem::local().create(path);
    file->append(begin);
    file->close();
    std::filesystem::resize_file(path, static_cast<uintmax_t>(size_bytes));
  }

  std::string directory_;
};

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift & 255U));
  return bytes;
}

TEST_F(SparseFiles, OfCifar10HaveMoreRecordsThanAFileCanHave) {
  write("test_batch.bin", "", 1'000'000'000LL * 3073);
  EXPECT_THAT([&] { cifar10(directory_, {.usage = "test"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "must hold at most 1000000 records, its 3073000000000 bytes would be 1000000000; it is of another")));
}

TEST_F(SparseFiles, OfMnistDoNotFitSizesWhoseProductIsMoreThan64Bits) {
  // 2^31 * 4 * (2^31 + 1) is 2^64 + 2^33.
  const uint32_t many = 1U << 31;
  const auto header = big_endian(2051) + big_endian(many) + big_endian(4) + big_endian(many + 1);
  write("train-images-idx3-ubyte", header, std::ssize(header) + (int64_t{1} << 33));
  write("train-labels-idx1-ubyte", big_endian(2049) + big_endian(many), 8 + int64_t{many});
  EXPECT_THAT([&] { mnist(directory_, {.usage = "train"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("its header says 2147483648 x 4 x 2147483649")));
}

TEST_F(SparseFiles, OfImagesAreLargerThanTheLargestImage) {
  write("class/a.jpg", "\xff\xd8\xff", int64_t{3} << 40);
  const auto source = image_folder(directory_);
  EXPECT_THAT(
      [&] {
        source.map("image", {decode(), resize(2)}).batches().next();
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("a.jpg: must have at most 1074790400 bytes to be read as an image, it has 3298534883328")));
}

// Rows are read from mapped files for as long as a training lasts.
TEST_F(SparseFiles, ThatAreCutShortAfterTheyWereOpenedAreAnErrorAndNoSignal) {
  write("test_batch.bin", "", 1000 * 3073);
  auto samples = cifar10(directory_, {.usage = "test", .shuffle = false}).batches();
  samples.next();
  std::filesystem::resize_file(join_path(directory_, "test_batch.bin"), 0);
  EXPECT_THAT(
      [&] {
        while (samples.next()) continue;
      },
      ThrowsMessage<IoError>(HasSubstr("became shorter")));

  write("t10k-images-idx3-ubyte", big_endian(2051) + big_endian(1000) + big_endian(100) + big_endian(100),
        16 + 1000 * 10'000);
  write("t10k-labels-idx1-ubyte", big_endian(2049) + big_endian(1000), 8 + 1000);
  auto digits = mnist(directory_, {.usage = "test", .shuffle = false}).batches();
  digits.next();
  std::filesystem::resize_file(join_path(directory_, "t10k-images-idx3-ubyte"), 0);
  EXPECT_THAT(
      [&] {
        while (digits.next()) continue;
      },
      ThrowsMessage<IoError>(HasSubstr("became shorter")));
}

}  // namespace
}  // namespace tessera::data
