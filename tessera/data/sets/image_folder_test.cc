#include "tessera/data/sets/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/image_file.h"

namespace tessera::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::ThrowsMessage;

// 2 x 3 pixels; byte i of them all is 10 i.
constexpr std::string_view kPng(
    "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x03\x00\x00\x00\x02\x08\x02"
    "\x00\x00\x00\x12\x16\xf1\x4d\x00\x00\x00\x17\x49\x44\x41\x54\x78\x9c\x63\x64\xe0\x12\x91\x93\x93\x93\x93"
    "\x93\x63\x89\x8a\x8a\x82\xb0\x00\x16\xbc\x02\x9a\x87\x2e\xb3\x8c\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42"
    "\x60\x82",
    80);
// 2 x 3 pixels of a palette of three colors, {0,0,0}, {10,20,30} and {200,100,50}: 0 1 2, 2 1 0; the second is
// transparent.
constexpr std::string_view kPalettePng(
    "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x03\x00\x00\x00\x02\x02\x03"
    "\x00\x00\x00\xe0\x1a\x8e\x89\x00\x00\x00\x09\x50\x4c\x54\x45\x00\x00\x00\x0a\x14\x1e\xc8\x64\x32\x51\xa4"
    "\xe3\x93\x00\x00\x00\x02\x74\x52\x4e\x53\xff\x00\xe5\xb7\x30\x4a\x00\x00\x00\x0c\x49\x44\x41\x54\x78\x9c"
    "\x63\x90\x60\x98\x00\x00\x00\xdc\x00\xa9\x6c\xe7\xc0\x23\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82",
    104);
// 7 x 9 pixels of {200,100,50}.
constexpr std::string_view kJpeg(
    "\xff\xd8\xff\xe0\x00\x10\x4a\x46\x49\x46\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xdb\x00\x43\x00\x03"
    "\x02\x02\x03\x02\x02\x03\x03\x03\x03\x04\x03\x03\x04\x05\x08\x05\x05\x04\x04\x05\x0a\x07\x07\x06\x08\x0c"
    "\x0a\x0c\x0c\x0b\x0a\x0b\x0b\x0d\x0e\x12\x10\x0d\x0e\x11\x0e\x0b\x0b\x10\x16\x10\x11\x13\x14\x15\x15\x15"
    "\x0c\x0f\x17\x18\x16\x14\x18\x12\x14\x15\x14\xff\xdb\x00\x43\x01\x03\x04\x04\x05\x04\x05\x09\x05\x05\x09"
    "\x14\x0d\x0b\x0d\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14"
    "\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14\x14"
    "\x14\x14\xff\xc0\x00\x11\x08\x00\x07\x00\x09\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01\xff\xc4\x00\x15\x00"
    "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\xff\xc4\x00\x14\x10\x01\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xc4\x00\x15\x01\x01\x01\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x08\xff\xc4\x00\x14\x11\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\xff\xda\x00\x0c\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00\x90\x00\x7a\x90\x7f"
    "\xff\xd9",
    288);

std::string little_endian(uint32_t value, int count = 4) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 255U));
  return bytes;
}

// Pixels of 24 bits; byte c of the pixel in row y and column x is first + 16 y + 4 x + c.
std::string bmp_file(int32_t height, int32_t width, uint32_t first) {
  std::string pixels;
  for (int32_t y = height - 1; y >= 0; --y) {
    for (int32_t x = 0; x < width; ++x) {
      for (int c = 2; c >= 0; --c)
        pixels.push_back(static_cast<char>(first + static_cast<uint32_t>(16 * y + 4 * x + c)));
    }
    pixels.resize((pixels.size() + 3) / 4 * 4);
  }
  return "BM" + little_endian(54 + static_cast<uint32_t>(pixels.size())) + little_endian(0) + little_endian(54) +
         little_endian(40) + little_endian(static_cast<uint32_t>(width)) +
         little_endian(static_cast<uint32_t>(height)) + little_endian(1, 2) + little_endian(24, 2) +
         std::string(24, '\0') + pixels;
}

Tensor decoded(std::string_view file) { return decode_image(std::as_bytes(std::span(file)), "file"); }

std::vector<int> values_of(const Tensor& image) {
  const auto values = image.values<uint8_t>();
  return {values.begin(), values.end()};
}

TEST(DecodeImage, ReadsPngOfColorsAndPalettes) {
  const Tensor colors = decoded(kPng);
  EXPECT_EQ(colors.shape(), (Shape{2, 3, 3}));
  std::vector<int> tens;
  for (int i = 0; i < 18; ++i) tens.push_back(10 * i);
  EXPECT_THAT(values_of(colors), ElementsAreArray(tens));
  EXPECT_THAT(values_of(decoded(kPalettePng)),
              ElementsAre(0, 0, 0, 10, 20, 30, 200, 100, 50, 200, 100, 50, 10, 20, 30, 0, 0, 0));
}

TEST(DecodeImage, ReadsJpeg) {
  const Tensor image = decoded(kJpeg);
  EXPECT_EQ(image.shape(), (Shape{7, 9, 3}));
  const auto values = values_of(image);
  EXPECT_THAT((std::vector<int>{values[0], values[1], values[2]}), ElementsAre(200, 100, 50));
}

TEST(DecodeImage, ReadsBmpFromTheLowestRowOn) {
  const Tensor image = decoded(bmp_file(2, 3, 0));
  EXPECT_EQ(image.shape(), (Shape{2, 3, 3}));
  EXPECT_THAT(values_of(image), ElementsAre(0, 1, 2, 4, 5, 6, 8, 9, 10, 16, 17, 18, 20, 21, 22, 24, 25, 26));
}

TEST(DecodeImage, RefusesWhatIsDamagedOrOfAnotherFormat) {
  const std::string bmp = bmp_file(2, 3, 0);
  for (const std::string_view whole : {kPng, kPalettePng, kJpeg, std::string_view(bmp)}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      // A PNG's last chunk is its end, a JPEG's last bytes are padding and its end.
      if (whole == kJpeg && size + 4 > whole.size()) continue;
      EXPECT_THROW(decoded(whole.substr(0, size)), InvalidArgument) << size << " of " << whole.size() << " bytes";
    }
  }
  EXPECT_THAT([] { decoded("GIF89a"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("file: a GIF is not available; JPEG, PNG and BMP are")));
  EXPECT_THAT([] { decoded("text"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("file (4 bytes): is no JPEG, PNG or BMP")));
  EXPECT_THAT([] { decoded(bmp_file(1 << 15, 1, 0).replace(22, 4, little_endian(1 << 30))); },
              ThrowsMessage<InvalidArgument>(HasSubstr("empty or too large")));
}

struct Images : testing::Test {
  Images() {
    write("dogs/a.bmp", bmp_file(4, 4, 100));
    write("cats/a.BMP", bmp_file(3, 5, 10));
    write("cats/b.png", kPng);
    write("cats/deep/z.png", "not in a class's folder itself");
    write("readme.bmp", "not in a folder");
  }
  void write(const std::string& name, std::string_view content) {
    const std::string path = "root/" + name;
    files.create_directories(path.substr(0, path.rfind('/')));
    const auto file = files.create(path);
    file->append(std::as_bytes(std::span(content)));
    file->close();
  }
  // The rows of one batch of all.
  static std::vector<Tensor> all(const Dataset& dataset) { return *dataset.batches({.num_workers = 0}).next(); }

  MemoryFileSystem files;
  const ImageFolderOptions in_order{.shuffle = false};
};

TEST_F(Images, AreThoseOfTheFoldersInTheOrderOfTheirPaths) {
  const auto dataset = image_folder(files, "root", in_order);
  EXPECT_EQ(dataset.get_dataset_size(), 3);
  EXPECT_THAT(image_classes(files, "root"), ElementsAre(testing::Pair("cats", 0), testing::Pair("dogs", 1)));
  const auto batch = all(dataset.map("image", {decode(), resize(2)}).batch(3));
  EXPECT_EQ(batch[0].type(), (Type{DType::kU8, {3, 2, 2, 3}}));
  EXPECT_THAT(batch[1].values<int32_t>(), ElementsAre(0, 0, 1));
}

TEST_F(Images, OfOtherClassesAndExtensionsAreLeftOut) {
  const auto dogs = image_folder(files, "root", {.class_indexing = {{"dogs", 7}}, .shuffle = false});
  EXPECT_THAT(all(dogs.map("image", {decode(), resize(2)}).batch(1))[1].values<int32_t>(), ElementsAre(7));
  EXPECT_EQ(image_folder(files, "root", {.extensions = {".BMP"}}).get_dataset_size(), 1);
  EXPECT_EQ(image_folder(files, "root", {.extensions = {".BMP", ".bmp"}}).get_dataset_size(), 2);
}

TEST_F(Images, AreBroughtToOneSizeInOneMapOrSeveral) {
  const std::vector<Transform> steps{decode(),
                                     resize_shorter_side(4),
                                     center_crop({4, 3}),
                                     rescale(1 / 255.0, 0),
                                     normalize({0.5, 0.4, 0.3}, {0.2, 0.2, 0.2}),
                                     hwc2chw()};
  const auto source = image_folder(files, "root", in_order);
  const auto once = all(source.map("image", steps).batch(3))[0];
  EXPECT_EQ(once.type(), (Type{DType::kF32, {3, 3, 4, 3}}));
  Dataset apart = source;
  for (const auto& step : steps) apart = apart.map("image", {step});
  const auto several = all(apart.map("label", {type_cast(DType::kI64)}).batch(3))[0];
  EXPECT_THAT(several.values<float>(), ElementsAreArray(once.values<float>()));
}

TEST_F(Images, AreCroppedAtRandomByTheSampleAndTheEpochOnly) {
  const auto dataset = image_folder(files, "root", {.shuffle = false, .seed = 3})
                           .map("image", {decode(), random_resized_crop(2), random_horizontal_flip()})
                           .batch(3);
  const auto of_epoch = [&](int64_t epoch, int workers) {
    return dataset.batches({.start = {epoch, 0}, .num_workers = workers}).next()->at(0);
  };
  const Tensor first = of_epoch(0, 0);
  EXPECT_THAT(of_epoch(0, 2).values<uint8_t>(), ElementsAreArray(first.values<uint8_t>()));
  EXPECT_NE(values_of(of_epoch(1, 0)), values_of(first));
}

TEST_F(Images, OfDifferentSizesAreNoBatch) {
  const auto dataset = image_folder(files, "root", in_order).map("image", {decode()});
  const auto says = ThrowsMessage<InvalidArgument>(
      AllOf(HasSubstr("samples of column \"image\" differ in size"), HasSubstr("a resize or crop to one size")));
  EXPECT_THAT([&] { dataset.batch(2); }, says);
  EXPECT_THAT([&] { dataset.batches(); }, says);
  EXPECT_THAT([&] { dataset.project({"label"}); }, says);
}

TEST_F(Images, ThatAreDamagedAreNamed) {
  write("cats/c.png", kPng.substr(0, 60));
  const auto dataset = image_folder(files, "root", in_order).map("image", {decode(), resize(2)}).batch(4);
  EXPECT_THAT([&] { all(dataset); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("root/cats/c.png"), HasSubstr("a damaged PNG"))));
}

TEST_F(Images, ThatAreMissingAreSaid) {
  EXPECT_THAT([&] { image_folder(files, "nowhere"); }, ThrowsMessage<InvalidArgument>(HasSubstr("no such directory")));
  EXPECT_THAT([&] { image_folder(files, "root/dogs"); }, ThrowsMessage<InvalidArgument>(HasSubstr("has no folders")));
  EXPECT_THAT([&] { image_folder(files, "root", {.extensions = {".gif"}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("have no files whose names end with .gif")));
  EXPECT_THAT(
      [&] {
        image_folder(files, "root", {.class_indexing = {{"birds", 1}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("class_indexing names \"birds\", but there is no such folder")));
}

TEST(CenterCrop, PadsWhereTheImageIsSmaller) {
  Tensor image(DType::kU8, {1, 2, 1});
  image.values<uint8_t>()[0] = 5;
  image.values<uint8_t>()[1] = 6;
  EXPECT_THAT(values_of(center_crop({1, 5})(image)), ElementsAre(0, 0, 5, 6, 0));
  EXPECT_THAT(values_of(center_crop(1)(image)), ElementsAre(5));
}

TEST(RandomResizedCrop, RefusesBoundsThatAreNone) {
  EXPECT_THAT([] { random_resized_crop(2, {.min_area = 1, .max_area = 0.5}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("positive and in order")));
  EXPECT_THAT([] { random_resized_crop(0); }, ThrowsMessage<InvalidArgument>(HasSubstr("size must be positive")));
}

}  // namespace
}  // namespace tessera::data
