#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/data/chain.h"
#include "tessera/data/transforms.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Draws draws(uint64_t position, uint64_t seed = 7) { return {{seed, 1, 0}, position}; }

// An image whose bytes look random and are the same everywhere.
Tensor noise_image(int64_t height, int64_t width, int64_t channels) {
  Tensor image(DType::kU8, {height, width, channels});
  const auto pixels = image.values<uint8_t>();
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(random_bits({3, 3, 3}, i));
  return image;
}

// Bilinear by definition, in double.
std::vector<double> resized_by_definition(const Tensor& image, int64_t height, int64_t width) {
  const auto in = image.to_doubles();
  const int64_t from_height = image.shape()[0], from_width = image.shape()[1], channels = image.shape()[2];
  const auto at = [&](double y, double x, int64_t c) {
    const auto clamp = [](double v, int64_t n) { return std::clamp(v, 0.0, static_cast<double>(n - 1)); };
    const auto index = [&](double row, double column) {
      const auto i = static_cast<int64_t>(clamp(row, from_height)) * from_width;
      return static_cast<size_t>((i + static_cast<int64_t>(clamp(column, from_width))) * channels + c);
    };
    const double y0 = std::floor(y), x0 = std::floor(x), v = y - y0, u = x - x0;
    return (1 - v) * ((1 - u) * in[index(y0, x0)] + u * in[index(y0, x0 + 1)]) +
           v * ((1 - u) * in[index(y0 + 1, x0)] + u * in[index(y0 + 1, x0 + 1)]);
  };
  std::vector<double> out;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double from_y = (static_cast<double>(y) + 0.5) * static_cast<double>(from_height) / height - 0.5;
      const double from_x = (static_cast<double>(x) + 0.5) * static_cast<double>(from_width) / width - 0.5;
      for (int64_t c = 0; c < channels; ++c) out.push_back(at(std::max(from_y, 0.0), std::max(from_x, 0.0), c));
    }
  }
  return out;
}

TEST(RandomCrop, CutsAWindowOutOfTheZeroPaddedImage) {
  const auto image = Tensor::of<uint8_t>({2, 2, 1}, {1, 2, 3, 4});
  const Transform crop = random_crop(2, {1, 1, 1, 1});
  std::set<std::vector<double>> seen;
  for (uint64_t i = 0; i < 300; ++i) seen.insert(crop(image, draws(i)).to_doubles());
  const std::set<std::vector<double>> windows{{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 0, 2, 0}, {0, 1, 0, 3}, {1, 2, 3, 4},
                                              {2, 0, 4, 0}, {0, 3, 0, 0}, {3, 4, 0, 0}, {4, 0, 0, 0}};
  EXPECT_EQ(seen, windows);
}

TEST(RandomCrop, PaddingIsLeftTopRightBottom) {
  const auto image = Tensor::of<float>({1, 1, 2}, {5, 6});
  EXPECT_THAT(random_crop({1, 2}, {1, 0, 0, 0})(image).to_doubles(), ElementsAre(0, 0, 5, 6));
  EXPECT_THAT(random_crop({2, 1}, {0, 0, 0, 1})(image).to_doubles(), ElementsAre(5, 6, 0, 0));
}

TEST(RandomCrop, RefusesAWindowThatDoesNotFit) {
  EXPECT_THAT(
      [] {
        random_crop(36, {1, 1, 1, 1}).output_type({DType::kU8, {32, 32, 3}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("random_crop: window 36x36 does not fit the padded image 34x34; "
                                               "give more padding (pad_if_needed is not supported)")));
  EXPECT_THAT([] { random_crop(0); }, ThrowsMessage<InvalidArgument>(HasSubstr("size must be positive, got 0x0")));
  EXPECT_THAT([] { random_crop(4, {0, -1, 0, 0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 0 -1 0 0")));
  EXPECT_THAT(
      [] {
        random_crop(1).output_type({DType::kU8, {32, 32}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("needs an image [height, width, channels]")));
}

TEST(RandomHorizontalFlip, MirrorsColumnsAndKeepsChannels) {
  const auto image = Tensor::of<uint8_t>({1, 3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(random_horizontal_flip(1)(image).to_doubles(), ElementsAre(5, 6, 3, 4, 1, 2));
  EXPECT_THAT(random_horizontal_flip(0)(image).to_doubles(), ElementsAre(1, 2, 3, 4, 5, 6));
  const auto rgb = Tensor::of<uint8_t>({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(random_horizontal_flip(1)(rgb).to_doubles(), ElementsAre(4, 5, 6, 1, 2, 3));
}

TEST(RandomHorizontalFlip, HappensAsOftenAsAsked) {
  const auto image = Tensor::of<uint8_t>({1, 2, 1}, {1, 2});
  int flipped = 0;
  for (uint64_t i = 0; i < 4000; ++i) flipped += random_horizontal_flip(0.25)(image, draws(i)).to_doubles()[0] == 2;
  EXPECT_NEAR(flipped, 1000, 100);
  EXPECT_THAT([] { random_horizontal_flip(1.5); }, ThrowsMessage<InvalidArgument>(HasSubstr("in [0, 1], got 1.5")));
}

TEST(Resize, InterpolatesBetweenPixelCentres) {
  const auto image = Tensor::of<uint8_t>({2, 2, 1}, {0, 100, 200, 255});
  EXPECT_THAT(resize(4)(image).to_doubles(), ElementsAre(0, 25, 75, 100,        //
                                                         50, 72, 117, 139,      // 50 72.1875 116.5625 138.75
                                                         150, 167, 200, 216,    // 150 166.5625 199.6875 216.25
                                                         200, 214, 241, 255));  // 200 213.75 241.25 255
  EXPECT_THAT(resize({1, 4})(image.cast(DType::kF32)).to_doubles(), ElementsAre(100, 119.375, 158.125, 177.5));
}

TEST(Resize, EqualsTheDefinitionToHalfAGreyLevel) {
  for (const auto& [height, width] : {std::pair{224, 224}, {32, 32}, {17, 50}, {7, 5}, {1, 1}, {64, 3}}) {
    for (const int64_t channels : {1, 3, 4}) {
      const Tensor image = noise_image(32, 31, channels);
      const auto expected = resized_by_definition(image, height, width);
      const auto grey = resize({height, width})(image).to_doubles();
      const auto exact = resize({height, width})(image.cast(DType::kF32)).to_doubles();
      ASSERT_EQ(grey.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_LE(std::abs(grey[i] - expected[i]), 0.5 + 1e-4) << i;
        ASSERT_LE(std::abs(exact[i] - expected[i]), 1e-4) << i;
      }
    }
  }
}

TEST(Resize, ShorterSideKeepsTheRatio) {
  EXPECT_EQ(resize_shorter_side(16).output_type({DType::kU8, {32, 48, 3}}).shape, Shape({16, 24, 3}));
  EXPECT_EQ(resize_shorter_side(16).output_type({DType::kU8, {48, 32, 3}}).shape, Shape({24, 16, 3}));
  EXPECT_THAT(
      [] {
        resize(8).output_type({DType::kI32, {4, 4, 3}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("resize: needs u8 or f32, got i32[4,4,3]")));
}

TEST(Rescale, MultipliesAndShifts) {
  const auto image = Tensor::of<uint8_t>({3}, {0, 51, 255});
  EXPECT_THAT(rescale(1 / 255.0, -0.5)(image).to_doubles(),
              ElementsAre(-0.5, testing::DoubleNear(-0.3, 1e-7), testing::DoubleNear(0.5, 1e-7)));
  EXPECT_EQ(rescale(2, 1)(Tensor::of<float>({1, 2}, {1.5F, -1})).to_doubles(), std::vector<double>({4, -1}));
}

TEST(Normalize, UsesEachChannelsMeanAndDeviation) {
  const auto image = Tensor::of<float>({1, 2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(normalize({1, 2}, {2, 0.5})(image).to_doubles(), ElementsAre(0, 0, 1, 4));
  EXPECT_THAT(
      [&] {
        normalize({1, 2, 3}, {1, 1, 1})(image);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("normalize: 3 means for the 2 channels of f32[1,2,2]")));
  EXPECT_THAT([] { normalize({1}, {0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("std must be positive")));
  EXPECT_THAT([] { normalize({1}, {1, 2}); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 1 and 2 numbers")));
}

TEST(Normalize, TakesChannelsFirstAndOneNumberForAll) {
  Tensor planes(DType::kF32, {2, 1, 2});
  const auto values = planes.values<float>();
  std::copy_n(std::array<float, 4>{1, 2, 3, 4}.begin(), 4, values.begin());
  EXPECT_THAT(normalize({1, 2}, {2, 0.5}, true)(planes).to_doubles(), ElementsAre(0, 0.5, 2, 4));
  EXPECT_THAT(normalize({1}, {2}, true)(planes).to_doubles(), ElementsAre(0, 0.5, 1, 1.5));
  EXPECT_THAT(normalize({1}, {2})(planes).to_doubles(), ElementsAre(0, 0.5, 1, 1.5));
  // As many channels as columns: which dim they are decides.
  EXPECT_THAT(normalize({1, 2}, {2, 0.5})(planes).to_doubles(), ElementsAre(0, 0, 1, 4));
  EXPECT_THAT(
      [&] {
        normalize({1, 2, 3}, {1, 1, 1}, true)(planes);
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("3 means for the 2 channels of f32[2,1,2], which it takes for [c, h, w]")));
}

TEST(Hwc2Chw, PutsChannelsFirst) {
  const auto image = Tensor::of<uint8_t>({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor planes = hwc2chw()(image);
  EXPECT_EQ(planes.shape(), Shape({3, 1, 2}));
  EXPECT_THAT(planes.to_doubles(), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(TypeCast, ConvertsAnyShape) {
  const Tensor label = type_cast(DType::kI32)(Tensor::scalar<uint32_t>(9));
  EXPECT_EQ(label.type(), parse_type("i32[]"));
  EXPECT_EQ(label.item(), 9);
}

TEST(Custom, RunsTheGivenFunctionWithTheSamplesDraws) {
  const Transform add = custom(
      "add_noise", [](const Type& input) { return input; },
      [](const TensorView& in, const TensorView& out, const Draws& draws) {
        *out.as<float>() = *in.as<float>() + draws.uniform(0);
      });
  EXPECT_EQ(add(Tensor::scalar(1.0F), draws(5)).item(), 1.0F + draws(5).uniform(0));
  EXPECT_THAT([] { custom("none", nullptr, nullptr); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"none\"")));
}

// Runs transforms one by one, with the draws that a chain gives them.
Tensor one_by_one(Tensor image, const std::vector<ChainLink>& links, const SampleKey& key) {
  for (const ChainLink& link : links) {
    image = link.transform(
        image, {{key.seed, link.stream, static_cast<uint64_t>(key.epoch)}, static_cast<uint64_t>(key.position)});
  }
  return image;
}

std::vector<ChainLink> links_of(const std::vector<Transform>& transforms) {
  std::vector<ChainLink> links;
  for (const Transform& transform : transforms) links.push_back({transform, 100 + links.size()});
  return links;
}

TEST(Chain, OnePassEqualsTheTransformsOneByOneBitForBit) {
  const Tensor image = noise_image(32, 32, 3);
  const Transform scale = rescale(1 / 255.0, 0.125);
  const Transform norm = normalize({0.4465, 0.4822, 0.4914}, {0.2010, 0.1994, 0.2023});
  const std::vector<std::vector<Transform>> chains = {
      {random_crop(32, {4, 4, 4, 4}), random_horizontal_flip(), resize(224), scale, norm, hwc2chw()},
      {random_crop(32, {4, 4, 4, 4}), random_horizontal_flip(), scale, norm, hwc2chw()},
      {random_crop({27, 29}), resize({19, 61}), scale, hwc2chw()},
      {random_horizontal_flip(), resize({33, 7}), norm},
      {resize_shorter_side(50), norm, hwc2chw()},
      {scale, norm},
      {norm, hwc2chw()},
  };
  for (const auto& transforms : chains) {
    const auto links = links_of(transforms);
    const Chain chain(image.type(), links);
    ASSERT_EQ(chain.num_steps(), 1);
    auto workspace = chain.make_workspace();
    for (int64_t position = 0; position < 8; ++position) {
      const SampleKey key{11, 2, position};
      const Tensor expected = one_by_one(image, links, key);
      Tensor dense(chain.output_type());
      chain.run(image.view(), dense.view(), key, workspace);
      ASSERT_TRUE(bit_equal(dense, expected));
      // Channels last in memory, and an order that no fast path knows.
      const Shape& s = expected.shape();
      for (const Strides& strides : {Strides{1, s[2] * s[0], s[0]}, Strides{1, s[0], s[0] * s[1]}}) {
        Tensor memory(chain.output_type());
        const TensorView strided(memory.view().data, DType::kF32, s, strides);
        chain.run(image.view(), strided, key, workspace);
        ASSERT_TRUE(bit_equal(Tensor::copy_of(strided), expected));
      }
    }
  }
}

TEST(Chain, WhatCannotBeFusedRunsStepByStep) {
  const Tensor image = noise_image(8, 8, 3);
  const auto links = links_of({resize(6), hwc2chw(), type_cast(DType::kF16)});
  const Chain chain(image.type(), links);
  EXPECT_EQ(chain.num_steps(), 3);
  auto workspace = chain.make_workspace();
  Tensor out(chain.output_type());
  chain.run(image.view(), out.view(), {}, workspace);
  EXPECT_TRUE(bit_equal(out, one_by_one(image, links, {})));
}

}  // namespace
}  // namespace tessera::data
