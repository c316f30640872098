#include "tessera/data/sets/cifar10.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/sets/synthetic_cifar10.h"

namespace tessera::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t kRecord = 3073;

void write(FileSystem& files, const std::string& path, const std::string& content) {
  auto file = files.create(path);
  file->append(content);
  file->close();
}

// Records with these labels; byte i of a record's pixels is i modulo 251.
std::string records(const std::vector<int>& labels) {
  std::string content;
  for (const int label : labels) {
    content.push_back(static_cast<char>(label));
    for (size_t i = 0; i + 1 < kRecord; ++i) content.push_back(static_cast<char>(i % 251));
  }
  return content;
}

struct Cifar10Files : testing::Test {
  Cifar10Files() {
    files.create_directories("d");
    for (int i = 1; i <= 5; ++i) write(files, fmt::format("d/data_batch_{}.bin", i), records({i, i}));
    write(files, "d/test_batch.bin", records({0}));
  }
  std::vector<double> labels(const Cifar10Options& options) {
    auto batches = cifar10(files, "d", options).batch(100).batches();
    return (*batches.next())[1].to_doubles();
  }
  MemoryFileSystem files;
};

TEST_F(Cifar10Files, ARecordBecomesAnRgbImageAndALabel) {
  auto samples = cifar10(files, "d", {.usage = "train", .shuffle = false}).batches();
  const auto sample = *samples.next();
  EXPECT_EQ(sample[0].type(), parse_type("u8[32,32,3]"));
  EXPECT_EQ(sample[1].type(), parse_type("u32[]"));
  EXPECT_EQ(sample[1].item(), 1);
  const auto pixels = sample[0].values<uint8_t>();
  for (size_t pixel = 0; pixel < 1024; ++pixel) {
    for (size_t c = 0; c < 3; ++c) ASSERT_EQ(pixels[3 * pixel + c], (1024 * c + pixel) % 251) << pixel;
  }
}

TEST_F(Cifar10Files, UsageChoosesTheFiles) {
  EXPECT_THAT(labels({.usage = "train", .shuffle = false}), ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
  EXPECT_THAT(labels({.usage = "test"}), ElementsAre(0));
  EXPECT_THAT(labels({.shuffle = false}), ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0));
  EXPECT_EQ(labels({}), labels({.usage = "all"}));
  EXPECT_THAT(
      [&] { labels({.usage = "valid"}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("usage must be \"train\", \"test\", \"all\" or empty, got \"valid\"")));
}

TEST_F(Cifar10Files, ShufflesUnlessToldOtherwise) {
  EXPECT_NE(labels({}), labels({.shuffle = false}));
  EXPECT_THAT(labels({}), testing::UnorderedElementsAre(0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5));
  EXPECT_EQ(labels({.num_samples = 4}).size(), 4);
}

TEST_F(Cifar10Files, TheFilesThatAreThereAreRead) {
  files.remove("d/data_batch_3.bin");
  files.remove("d/test_batch.bin");
  testing::internal::CaptureStderr();
  EXPECT_THAT(labels({.shuffle = false}), ElementsAre(1, 1, 2, 2, 4, 4, 5, 5));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("cifar10 \"d\": data_batch_3.bin, test_batch.bin missing: the other files are read"));
}

TEST_F(Cifar10Files, AMissingDirectoryOrUsageIsNamed) {
  EXPECT_THAT([&] { cifar10(files, "nowhere"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cifar10 \"nowhere\": no such directory; it must hold")));
  files.remove("d/test_batch.bin");
  EXPECT_THAT(
      [&] { cifar10(files, "d", {.usage = "test"}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("cifar10 \"d\": test_batch.bin missing; usage \"test\" needs one of "
                                               "test_batch.bin at least")));
  EXPECT_EQ(cifar10(files, "d", {.usage = "train"}).get_dataset_size(), 10);
}

TEST_F(Cifar10Files, ATruncatedFileIsNamedWithItsSizeAndRemainder) {
  write(files, "d/data_batch_2.bin", records({1, 2}).substr(0, 5000));
  EXPECT_THAT([&] { cifar10(files, "d"); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("cifar10 file \"d/data_batch_2.bin\""),
                        HasSubstr("multiple of 3073 bytes, got 5000 bytes = 1 records and 1927 bytes"))));
  write(files, "d/data_batch_2.bin", "");
  EXPECT_THAT([&] { cifar10(files, "d"); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 0 bytes")));
}

TEST_F(Cifar10Files, ALabelOutsideTheTenClassesIsNamed) {
  write(files, "d/test_batch.bin", records({9, 10}));
  EXPECT_THAT([&] { cifar10(files, "d"); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "cifar10 file \"d/test_batch.bin\" (6146 bytes): label of record 1 must be in [0, 9], got 10")));
}

TEST(SyntheticCifar10, IsCifar10sFormWithBalancedClasses) {
  MemoryFileSystem files;
  write_synthetic_cifar10(files, "a/b", {.train_records = 203, .test_records = 50, .seed = 4});
  EXPECT_EQ(cifar10(files, "a/b").get_dataset_size(), 253);
  EXPECT_EQ(cifar10(files, "a/b", {.usage = "test"}).get_dataset_size(), 50);
  EXPECT_EQ(files.size_bytes("a/b/data_batch_5.bin") % static_cast<int64_t>(kRecord), 0);
  const std::string names = files.read_text("a/b/batches.meta.txt");
  EXPECT_EQ(std::count(names.begin(), names.end(), '\n'), 10);
  auto batches = cifar10(files, "a/b", {.usage = "test"}).batch(50).batches();
  std::map<double, int> counts;
  for (const double label : (*batches.next())[1].to_doubles()) ++counts[label];
  EXPECT_EQ(counts.size(), 10);
  for (const auto& [label, count] : counts) EXPECT_EQ(count, 5) << label;
  EXPECT_THAT([&] { write_synthetic_cifar10(files, "a", {.train_records = 4}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("at least 5 training and 1 test records, got 4 and 1000")));
}

TEST(SyntheticCifar10, IsAFunctionOfTheSeed) {
  MemoryFileSystem files;
  for (const char* directory : {"a", "b"}) {
    write_synthetic_cifar10(files, directory, {.train_records = 20, .test_records = 4, .seed = 1});
  }
  write_synthetic_cifar10(files, "c", {.train_records = 20, .test_records = 4, .seed = 2});
  EXPECT_EQ(files.read_text("a/data_batch_1.bin"), files.read_text("b/data_batch_1.bin"));
  EXPECT_NE(files.read_text("a/data_batch_1.bin"), files.read_text("c/data_batch_1.bin"));
  EXPECT_NE(files.read_text("a/data_batch_1.bin"), files.read_text("a/test_batch.bin"));
}

// Share of test pictures whose nearest class, by distance of pictures to the classes' mean pictures, is the right one.
double nearest_mean_accuracy(FileSystem& files, const std::string& directory) {
  const auto whole = [&](const char* usage) {
    const Dataset dataset = cifar10(files, directory, {.usage = usage, .shuffle = false});
    auto batches = dataset.batch(dataset.get_dataset_size()).batches();
    return *batches.next();
  };
  const auto train = whole("train");
  const auto test = whole("test");
  constexpr size_t kPixels = 3072;
  std::array<std::vector<double>, 10> means;
  means.fill(std::vector<double>(kPixels, 0));
  const auto labels = train[1].values<uint32_t>();
  for (size_t i = 0; i < labels.size(); ++i) {
    for (size_t p = 0; p < kPixels; ++p) {
      means[labels[i]][p] += train[0].values<uint8_t>()[i * kPixels + p] * 10.0 / static_cast<double>(labels.size());
    }
  }
  const auto test_labels = test[1].values<uint32_t>();
  int right = 0;
  for (size_t i = 0; i < test_labels.size(); ++i) {
    std::array<double, 10> distance{};
    for (size_t k = 0; k < 10; ++k) {
      for (size_t p = 0; p < kPixels; ++p) {
        const double difference = means[k][p] - test[0].values<uint8_t>()[i * kPixels + p];
        distance[k] += difference * difference;
      }
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == static_cast<int>(test_labels[i]);
  }
  return static_cast<double>(right) / static_cast<double>(test_labels.size());
}

TEST(SyntheticCifar10, ALinearRuleLearnsMuchButNotAll) {
  MemoryFileSystem files;
  write_synthetic_cifar10(files, "d", {.train_records = 1000, .test_records = 300});
  const double accuracy = nearest_mean_accuracy(files, "d");
  EXPECT_GT(accuracy, 0.3);
  EXPECT_LT(accuracy, 0.9);
}

TEST(RealCifar10, ShorterFilesAreReadWhole) {
  const char* shared = std::getenv("TESSERA_SHARED");
  const std::string directory =
      join_path(shared != nullptr ? shared : std::string(TESSERA_SOURCE_DIR) + "/../shared", "data/cifar-10");
  if (!FileSystem::local().exists(join_path(directory, "test_batch.bin"))) {
    GTEST_SKIP() << "real CIFAR-10 files are absent: " << directory;
  }
  EXPECT_EQ(cifar10(directory, {.usage = "train"}).get_dataset_size(), 5438);
  EXPECT_EQ(cifar10(directory, {.usage = "test"}).get_dataset_size(), 1017);
  const Dataset all = cifar10(directory);
  EXPECT_EQ(all.get_dataset_size(), 6455);
  auto batches = all.batch(6455).batches();
  std::map<double, int> counts;
  for (const double label : (*batches.next())[1].to_doubles()) ++counts[label];
  EXPECT_EQ(counts.size(), 10);
}

}  // namespace
}  // namespace tessera::data
