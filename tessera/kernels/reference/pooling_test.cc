#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

Attributes window(Ints kernel, Ints strides, Ints padding = {0, 0, 0, 0}) {
  return {{"kernel", std::move(kernel)}, {"strides", std::move(strides)}, {"padding", std::move(padding)}};
}
Attributes with_size(Attributes attributes, int64_t h, int64_t w) {
  attributes.set("input_size", Ints{h, w});
  return attributes;
}
Attributes averaging(Attributes attributes, bool count_include_pad) {
  attributes.set("count_include_pad", count_include_pad);
  return attributes;
}

TEST(ReferenceMaxPool, KeepsTheLargestAndItsPlace) {
  const Tensor x = Tensor::of<float>({1, 1, 3, 4}, {1, 5, 2, 0,  //
                                                    4, 3, 8, 7,  //
                                                    9, 6, 1, 1});
  for (const StrideOrder layout : {StrideOrder::kDense, StrideOrder::kChannelsLast, StrideOrder::kReversed}) {
    const auto result = run_kernel("max_pool2d", {x}, window({2, 2}, {1, 2}),
                                   {{DType::kF32, {1, 1, 2, 2}}, {DType::kU8, {1, 1, 2, 2}}}, {.layout = layout});
    EXPECT_THAT(result[0].to_doubles(), ElementsAre(5, 8, 9, 8));
    EXPECT_THAT(result[1].to_doubles(), ElementsAre(1, 2, 2, 0));
    const Tensor dy = Tensor::of<float>({1, 1, 2, 2}, {1, 2, 3, 4});
    const Tensor dx = run_kernel1("max_pool2d_grad", {dy, result[1]}, with_size(window({2, 2}, {1, 2}), 3, 4), x.type(),
                                  {.layout = layout});
    EXPECT_THAT(dx.to_doubles(), ElementsAre(0, 1, 0, 0, 0, 0, 6, 0, 3, 0, 0, 0));
    const Tensor taken =
        run_kernel1("max_pool2d_take", {x, result[1]}, window({2, 2}, {1, 2}), result[0].type(), {.layout = layout});
    EXPECT_TRUE(bit_equal(taken, result[0]));
  }
}

TEST(ReferenceMaxPool, TheFirstOfEqualsWinsAndPaddingNever) {
  const Tensor x = Tensor::of<double>({1, 1, 2, 2}, {-3, -3, -3, -3});
  const auto result = run_kernel("max_pool2d", {x}, window({3, 3}, {1, 1}, {1, 1, 1, 1}),
                                 {{DType::kF64, {1, 1, 2, 2}}, {DType::kU8, {1, 1, 2, 2}}});
  EXPECT_THAT(result[0].to_doubles(), ElementsAre(-3, -3, -3, -3));
  // Pixel (0,0) is place 4 of the first window, 3 of the second, 1 of the third and 0 of the last.
  EXPECT_THAT(result[1].to_doubles(), ElementsAre(4, 3, 1, 0));
  const Tensor dx = run_kernel1("max_pool2d_grad", {Tensor::full(x.type(), 1), result[1]},
                                with_size(window({3, 3}, {1, 1}, {1, 1, 1, 1}), 2, 2), x.type());
  EXPECT_THAT(dx.to_doubles(), ElementsAre(4, 0, 0, 0));
}

TEST(ReferenceMaxPool, NaNAndMinusInfinityAreValues) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::of<double>({1, 1, 1, 6}, {1, nan, 2, -inf, -inf, -inf});
  const auto result =
      run_kernel("max_pool2d", {x}, window({1, 3}, {1, 3}), {{DType::kF64, {1, 1, 1, 2}}, {DType::kU8, {1, 1, 1, 2}}});
  EXPECT_TRUE(std::isnan(result[0].values<double>()[0]));
  EXPECT_EQ(result[0].values<double>()[1], -inf);
  EXPECT_THAT(result[1].to_doubles(), ElementsAre(1, 0));
}

TEST(ReferenceMaxPool, LargeWindowsCountInI32) {
  Tensor x = Tensor::full({DType::kF32, {1, 1, 17, 17}}, 0);
  x.values<float>()[288] = 1;
  const auto result = run_kernel("max_pool2d", {x}, window({17, 17}, {1, 1}),
                                 {{DType::kF32, {1, 1, 1, 1}}, {DType::kI32, {1, 1, 1, 1}}});
  EXPECT_EQ(result[1].item(), 288);
}

TEST(ReferenceAvgPool, PaddingCountsOnlyWhenAsked) {
  const Tensor x = Tensor::of<float>({1, 1, 2, 2}, {4, 8, 12, 16});
  const auto pool = [&](bool count, StrideOrder layout) {
    return run_kernel1("avg_pool2d", {x}, averaging(window({2, 2}, {2, 2}, {1, 1, 1, 1}), count),
                       {DType::kF32, {1, 1, 2, 2}}, {.layout = layout})
        .to_doubles();
  };
  for (const StrideOrder layout : {StrideOrder::kDense, StrideOrder::kChannelsLast, StrideOrder::kReversed}) {
    EXPECT_THAT(pool(false, layout), ElementsAre(4, 8, 12, 16));
    EXPECT_THAT(pool(true, layout), ElementsAre(1, 2, 3, 4));
  }
}

// Sum of y * pooled(x) equals sum of x * gradient(y): the gradient is the transpose.
TEST(ReferenceAvgPool, GradientIsTheTranspose) {
  struct Case {
    Ints kernel;
    Ints strides;
    Ints padding;
    Shape y;
  };
  for (const auto& [kernel, strides, padding, y_shape] :
       {Case{{2, 2}, {2, 2}, {0, 0, 0, 0}, {2, 3, 3, 2}}, Case{{3, 2}, {1, 2}, {2, 1, 0, 1}, {2, 3, 8, 3}},
        Case{{3, 3}, {2, 2}, {1, 1, 1, 1}, {2, 3, 4, 3}}, Case{{2, 2}, {3, 3}, {0, 0, 0, 0}, {2, 3, 2, 2}}}) {
    for (const bool count : {false, true}) {
      const Tensor x = random_tensor({DType::kF64, {2, 3, 7, 5}}, 1);
      const Tensor dy = random_tensor({DType::kF64, y_shape}, 2);
      const Attributes attributes = averaging(window(kernel, strides, padding), count);
      const Tensor y = run_kernel1("avg_pool2d", {x}, attributes, dy.type(), {.layout = StrideOrder::kChannelsLast});
      const Tensor dx = run_kernel1("avg_pool2d_grad", {dy}, with_size(attributes, 7, 5), x.type(),
                                    {.layout = StrideOrder::kReversed, .threads = 2});
      const auto dot = [](const Tensor& a, const Tensor& b) {
        double sum = 0;
        for (size_t i = 0; i < a.values<double>().size(); ++i) sum += a.values<double>()[i] * b.values<double>()[i];
        return sum;
      };
      EXPECT_NEAR(dot(y, dy), dot(x, dx), 1e-12);
    }
  }
}

TEST(ReferencePooling, AnEmptyBatchIsLegal) {
  const Type empty{DType::kF32, {0, 2, 2, 2}};
  const auto result = run_kernel("max_pool2d", {Tensor(DType::kF32, {0, 2, 4, 4})}, window({2, 2}, {2, 2}),
                                 {empty, {DType::kU8, {0, 2, 2, 2}}});
  EXPECT_EQ(result[0].num_elements(), 0);
  EXPECT_EQ(
      run_kernel1("avg_pool2d", {Tensor(DType::kF32, {0, 2, 4, 4})}, averaging(window({2, 2}, {2, 2}), false), empty)
          .num_elements(),
      0);
}

}  // namespace
}  // namespace tessera::kernels
