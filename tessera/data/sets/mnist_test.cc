#include "tessera/data/sets/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/batch_iterator.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift & 255U));
  return bytes;
}

std::string labels_file(const std::string& labels) {
  return big_endian(2049) + big_endian(static_cast<uint32_t>(labels.size())) + labels;
}

// Images of 2 x 3 pixels; byte i of them all is i.
std::string images_file(uint32_t count) {
  std::string content = big_endian(2051) + big_endian(count) + big_endian(2) + big_endian(3);
  for (uint32_t i = 0; i < count * 6; ++i) content.push_back(static_cast<char>(i));
  return content;
}

struct MnistFiles : testing::Test {
  MnistFiles() {
    files.create_directories("d");
    write("train-images-idx3-ubyte", images_file(3));
    write("train-labels-idx1-ubyte", labels_file({7, 2, 9}));
    write("t10k-images-idx3-ubyte", images_file(1));
    write("t10k-labels-idx1-ubyte", labels_file({5}));
  }
  void write(const std::string& name, const std::string& content) {
    auto file = files.create("d/" + name);
    file->append(content);
    file->close();
  }
  std::vector<double> labels(const MnistOptions& options) {
    return (*mnist(files, "d", options).batch(100).batches().next())[1].to_doubles();
  }
  void expect_refusal(const std::string& text) {
    EXPECT_THAT([&] { mnist(files, "d"); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  }
  MemoryFileSystem files;
};

TEST_F(MnistFiles, AnImageKeepsItsRowsAndHasOneChannel) {
  auto samples = mnist(files, "d", {.usage = "train", .shuffle = false}).batches();
  samples.next();
  const auto second = *samples.next();
  EXPECT_EQ(second[0].type(), parse_type("u8[2,3,1]"));
  EXPECT_EQ(second[0].to_doubles(), (std::vector<double>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(second[1].type(), parse_type("u32[]"));
  EXPECT_EQ(second[1].item(), 2);
}

TEST_F(MnistFiles, UsageChoosesTheFiles) {
  EXPECT_THAT(labels({.usage = "train", .shuffle = false}), ElementsAre(7, 2, 9));
  EXPECT_THAT(labels({.usage = "test"}), ElementsAre(5));
  EXPECT_THAT(labels({.shuffle = false}), ElementsAre(7, 2, 9, 5));
  EXPECT_THAT(labels({}), testing::UnorderedElementsAre(7, 2, 9, 5));
  EXPECT_THAT([&] { labels({.usage = "valid"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("usage must be \"train\", \"test\", \"all\" or empty")));
}

TEST_F(MnistFiles, ShardsShareTheImages) {
  EXPECT_THAT(labels({.shuffle = false, .num_shards = 2, .shard_id = 1}), ElementsAre(2, 5));
}

TEST_F(MnistFiles, WhatIsMissingIsNamed) {
  EXPECT_THAT([&] { mnist(files, "nowhere"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("mnist \"nowhere\": no such directory")));
  files.remove("d/t10k-labels-idx1-ubyte");
  expect_refusal("mnist \"d\": t10k-labels-idx1-ubyte missing; usage \"all\" needs it");
  write("t10k-labels-idx1-ubyte.gz", "x");
  expect_refusal("unpack its .gz");
}

TEST_F(MnistFiles, DamagedFilesAreRefused) {
  write("train-labels-idx1-ubyte", "\x1f\x8b packed");
  expect_refusal("must begin with the number 2049");
  write("train-labels-idx1-ubyte", labels_file({1, 2, 3}) + "x");
  expect_refusal("its header says 3, which is 3 bytes, but 4 follow it");
  write("train-labels-idx1-ubyte", labels_file({1, 2}));
  expect_refusal("has 3 images, train-labels-idx1-ubyte has 2 labels");
  write("train-labels-idx1-ubyte", labels_file({1, 2, 3}));
  write("train-images-idx3-ubyte", big_endian(2051) + std::string(12, '\xff'));
  expect_refusal("its header says 4294967295 x 4294967295 x 4294967295");
}

}  // namespace
}  // namespace tessera::data
