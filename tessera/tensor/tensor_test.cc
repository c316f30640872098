#include "tessera/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/tensor/attributes.h"
#include "tessera/tensor/strided_copy.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(DType, PromotesToTheWiderKind) {
  EXPECT_EQ(promote(DType::kBool, DType::kI32), DType::kI32);
  EXPECT_EQ(promote(DType::kI64, DType::kF16), DType::kF16);
  EXPECT_EQ(promote(DType::kBF16, DType::kF16), DType::kF32);
  EXPECT_EQ(promote(DType::kF32, DType::kF64), DType::kF64);
}

TEST(DType, UnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_THAT([] { parse_dtype("float33"); }, ThrowsMessage<InvalidArgument>(HasSubstr("unknown dtype \"float33\"")));
  EXPECT_EQ(parse_dtype("Float32"), DType::kF32);
  EXPECT_EQ(parse_dtype("BFloat16"), DType::kBF16);
}

TEST(Half, EveryFloat16RoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float wide = half;
    if (std::isnan(wide)) continue;
    ASSERT_EQ(Float16(wide).bits, half.bits) << wide;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(static_cast<float>(Float16(2049.0F)), 2048.0F);
  EXPECT_EQ(static_cast<float>(Float16(2051.0F)), 2052.0F);
  EXPECT_EQ(static_cast<float>(BFloat16(257.0F)), 256.0F);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(70000.0F))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::nanf("")))));
}

TEST(Shape, BroadcastsAsNumPyDoes) {
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {2, 1}), Shape({4, 2, 3}));
  EXPECT_EQ(broadcast_shapes({0, 1}, {1, 5}), Shape({0, 5}));
  EXPECT_THAT(
      [] {
        broadcast_shapes({2, 3}, {4});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("shapes [2,3] and [4] do not broadcast")));
}

TEST(Shape, ChannelsLastKeepsTheLogicalOrder) {
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), Shape({60, 1, 15, 3}));
  EXPECT_TRUE(is_channels_last({2, 3, 1, 1}, dense_strides({2, 3, 1, 1})));
}

TEST(Shape, RefusesSizesWhoseProductsDoNotFit) {
  const int64_t large = int64_t{1} << 31;
  const auto refused = ThrowsMessage<InvalidArgument>(HasSubstr("has more elements than an int64 counts bytes of"));
  // The second has 2^61 elements, of which f64 takes 2^64 bytes.
  for (const Shape& shape : {Shape{large, large, large}, Shape{large, large / 2}, Shape{0, large, large, large}}) {
    EXPECT_THAT([&] { shape.num_elements(); }, refused) << shape.to_string();
    EXPECT_THAT([&] { dense_strides(shape); }, refused) << shape.to_string();
    EXPECT_THAT([&] { channels_last_strides(shape); }, refused) << shape.to_string();
    EXPECT_THAT([&] { Tensor::zeros({DType::kF64, shape}); }, refused) << shape.to_string();
  }
  EXPECT_EQ((Shape{large, 0, large / 8}).num_elements(), 0);
}

TEST(Type, TextRoundTrips) {
  for (const char* text : {"f32[2,3]", "bool[]", "i64[0]"}) EXPECT_EQ(parse_type(text).to_string(), text);
  EXPECT_THROW(parse_type("f32[-1]"), InvalidArgument);
  EXPECT_THROW(parse_type("f32[9223372036854775807,2]"), InvalidArgument);
}

TEST(Tensor, CastSaturatesIntegers) {
  const auto t = Tensor::of<float>({4}, {300.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), 2.7F});
  EXPECT_THAT(t.cast(DType::kU8).to_doubles(), ElementsAre(255, 0, 0, 2));
}

TEST(Tensor, CopiesAStridedView) {
  const auto t = Tensor::of<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  const TensorView transposed(t.view().data, DType::kI32, {3, 2}, {1, 3});
  EXPECT_THAT(Tensor::copy_of(transposed).to_doubles(), ElementsAre(1, 4, 2, 5, 3, 6));
}

// Views of `shape` inside a larger block whose dims lie in `order`, with `room` elements more along each.
Strides spread_strides(const Shape& shape, const std::vector<int>& order, int64_t room) {
  Strides strides = shape;
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= shape[order[i]] + room;
  }
  return strides;
}

TEST(StridedCopy, WalksBackwards) {
  Tensor x(DType::kF32, {2, 3});
  for (size_t i = 0; i < 6; ++i) x.values<float>()[i] = static_cast<float>(i);
  std::array<float, 6> y{};
  StridedCopy({2, 3}, {3, 1}, {-3, -1}, 4).run(x.bytes().data(), &y[5]);
  EXPECT_THAT(y, ElementsAre(5, 4, 3, 2, 1, 0));
  StridedCopy({2, 3}, {-3, 1}, {1, -2}, 4).run(&x.values<float>()[3], &y[4]);
  EXPECT_THAT(y, ElementsAre(5, 2, 4, 1, 3, 0));
}

TEST(StridedCopy, CopiesEveryLayoutToEveryOtherWholeAndInUnits) {
  for (const Shape& shape :
       {Shape{}, Shape{0, 3}, Shape{70, 1, 20}, Shape{3, 17, 66}, Shape{2, 5, 4, 9}, Shape{300, 90}}) {
    std::vector<int> order(static_cast<size_t>(shape.ndim()));
    std::iota(order.begin(), order.end(), 0);
    std::vector<Strides> layouts = {spread_strides(shape, order, 0)};
    do {
      layouts.push_back(spread_strides(shape, order, 3));
    } while (std::next_permutation(order.begin(), order.end()));
    layouts.push_back(spread_strides(shape, order, 0));
    for (int dim = 0; dim < shape.ndim(); ++dim) layouts.back()[dim] = dim % 2 == 0 ? 0 : layouts.back()[dim];
    for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
      for (const auto& from : layouts) {
        for (size_t to = 0; to + 1 < layouts.size(); ++to) {
          constexpr int64_t kRoom = 30'000;
          std::vector<uint8_t> source(kRoom * size_bytes(dtype));
          for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 37 + i / 251);
          std::vector<uint8_t> expected(source.size(), 0xEE);
          for (int64_t n = 0; n < shape.num_elements(); ++n) {
            int64_t rest = n;
            int64_t a = 0;
            int64_t b = 0;
            for (int dim = shape.ndim(); dim-- > 0;) {
              a += rest % shape[dim] * from[dim];
              b += rest % shape[dim] * layouts[to][dim];
              rest /= shape[dim];
            }
            std::memcpy(&expected[static_cast<size_t>(b) * size_bytes(dtype)],
                        &source[static_cast<size_t>(a) * size_bytes(dtype)], size_bytes(dtype));
          }
          std::vector<uint8_t> whole(source.size(), 0xEE);
          const StridedCopy copy(shape, from, layouts[to], size_bytes(dtype));
          copy.run(source.data(), whole.data());
          ASSERT_TRUE(whole == expected) << shape.to_string() << from.to_string() << layouts[to].to_string();
          std::vector<uint8_t> parts(source.size(), 0xEE);
          for (int64_t unit = copy.num_units(); unit-- > 0;) copy.run(source.data(), parts.data(), unit, unit + 1);
          ASSERT_TRUE(parts == expected) << shape.to_string() << from.to_string() << layouts[to].to_string();
        }
      }
    }
  }
}

TEST(Attributes, TextRoundTrips) {
  const Attributes attributes{{"axes", Ints{0, -1}}, {"empty", Ints{}},          {"none", Doubles{}},
                              {"eps", 1e-5},         {"keep_dims", true},        {"off", false},
                              {"mode", "a\"b, {c}"}, {"dtype", DType::kF16},     {"whole", 3.0},
                              {"n", int64_t{-7}},    {"scales", Doubles{1, 0.5}}};
  const auto text = attributes.to_string();
  EXPECT_EQ(parse_attributes(text), attributes) << text;
  EXPECT_THAT(text, HasSubstr("keep_dims"));
}

TEST(Attributes, NamesAreWords) {
  // What is no name would be sorted elsewhere, and so be read differently the next time.
  EXPECT_THAT([] { parse_attributes("{dims=[32,10],-2]}"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("attribute \"-2]\": a name has letters")));
}

TEST(Attributes, WrongTypeIsNamed) {
  const Attributes attributes{{"axis", "x"}};
  EXPECT_THAT([&] { attributes.get_int("axis"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("attribute axis=\"x\" must be an integer")));
}

}  // namespace
}  // namespace tessera
