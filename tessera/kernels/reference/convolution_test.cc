#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;

struct Convolution {
  Shape x;
  Shape weight;
  Ints strides = {1, 1};
  Ints padding = {0, 0, 0, 0};
  Ints dilation = {1, 1};
  int64_t groups = 1;

  Shape y() const {
    const auto size = [&](int dim) {
      const auto d = static_cast<size_t>(dim);
      const int64_t padded = x[dim + 2] + padding[2 * d] + padding[2 * d + 1];
      return (padded - dilation[d] * (weight[dim + 2] - 1) - 1) / strides[d] + 1;
    };
    return {x[0], weight[0], size(0), size(1)};
  }
  Attributes attributes() const {
    return {{"strides", strides}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  }
  Attributes with(const char* name, const Shape& shape) const {
    Attributes all = attributes();
    all.set(name, Ints{shape[2], shape[3]});
    return all;
  }

  // The definition: calls f(y's index, x's index, weight's index) for every product, indices into row-major elements.
  template <typename F>
  void for_each_product(F&& f) const {
    const Shape out = y();
    const int64_t outputs = weight[0] / groups;
    for (int64_t n = 0; n < x[0]; ++n) {
      for (int64_t co = 0; co < weight[0]; ++co) {
        for (int64_t ci = 0; ci < weight[1]; ++ci) {
          for (int64_t oy = 0; oy < out[2]; ++oy) {
            for (int64_t ox = 0; ox < out[3]; ++ox) {
              for (int64_t ky = 0; ky < weight[2]; ++ky) {
                for (int64_t kx = 0; kx < weight[3]; ++kx) {
                  const int64_t iy = oy * strides[0] + ky * dilation[0] - padding[0];
                  const int64_t ix = ox * strides[1] + kx * dilation[1] - padding[2];
                  if (iy < 0 || iy >= x[2] || ix < 0 || ix >= x[3]) continue;
                  const int64_t channel = co / outputs * weight[1] + ci;
                  f(static_cast<size_t>(((n * out[1] + co) * out[2] + oy) * out[3] + ox),
                    static_cast<size_t>(((n * x[1] + channel) * x[2] + iy) * x[3] + ix),
                    static_cast<size_t>(((co * weight[1] + ci) * weight[2] + ky) * weight[3] + kx));
                }
              }
            }
          }
        }
      }
    }
  }
};

std::vector<double> zeros(const Shape& shape) { return std::vector<double>(static_cast<size_t>(shape.num_elements())); }

// Runs all three operators and compares them with the definition.
void expect_equals_definition(const Convolution& c, DType dtype, double tolerance, RunOptions options) {
  SCOPED_TRACE(fmt::format("x {} weight {} {}", c.x, c.weight, c.attributes().to_string()));
  const Tensor x = random_tensor({dtype, c.x}, 1);
  const Tensor weight = random_tensor({dtype, c.weight}, 2);
  const Tensor dy = random_tensor({dtype, c.y()}, 3);
  const auto x_values = x.to_doubles();
  const auto weight_values = weight.to_doubles();
  const auto dy_values = dy.to_doubles();
  auto y = zeros(c.y());
  auto dx = zeros(c.x);
  auto dweight = zeros(c.weight);
  c.for_each_product([&](size_t at_y, size_t at_x, size_t at_weight) {
    y[at_y] += x_values[at_x] * weight_values[at_weight];
    dx[at_x] += dy_values[at_y] * weight_values[at_weight];
    dweight[at_weight] += dy_values[at_y] * x_values[at_x];
  });
  EXPECT_LT(relative_error(run_kernel1("conv2d", {x, weight}, c.attributes(), {dtype, c.y()}, options), y), tolerance);
  EXPECT_LT(
      relative_error(run_kernel1("conv2d_grad_input", {dy, weight}, c.with("input_size", c.x), x.type(), options), dx),
      tolerance);
  EXPECT_LT(
      relative_error(
          run_kernel1("conv2d_grad_weight", {dy, x}, c.with("kernel_size", c.weight), weight.type(), options), dweight),
      tolerance);
}

TEST(ReferenceConv2d, EqualsTheDefinitionForEveryGeometry) {
  int count = 0;
  for (const Ints& kernel : {Ints{1, 1}, Ints{3, 3}, Ints{2, 3}}) {
    for (const Ints& strides : {Ints{1, 1}, Ints{2, 2}, Ints{1, 3}}) {
      for (const Ints& padding : {Ints{0, 0, 0, 0}, Ints{1, 1, 1, 1}, Ints{0, 2, 3, 1}}) {
        for (const Ints& dilation : {Ints{1, 1}, Ints{2, 1}}) {
          for (const int64_t groups : {1, 2}) {
            const Convolution c{.x = {2, 4, 7, 6},
                                .weight = {6, 4 / groups, kernel[0], kernel[1]},
                                .strides = strides,
                                .padding = padding,
                                .dilation = dilation,
                                .groups = groups};
            const auto layout =
                std::array{StrideOrder::kDense, StrideOrder::kChannelsLast, StrideOrder::kReversed}[count++ % 3];
            expect_equals_definition(c, DType::kF64, 1e-13, {.layout = layout});
          }
        }
      }
    }
  }
  EXPECT_EQ(count, 108);
}

TEST(ReferenceConv2d, EqualsTheDefinitionWithManyChannels) {
  // More than one panel of columns, more than one block of outputs, odd remainders.
  for (const StrideOrder layout : {StrideOrder::kDense, StrideOrder::kChannelsLast, StrideOrder::kReversed}) {
    expect_equals_definition({.x = {2, 37, 5, 5}, .weight = {70, 37, 3, 3}, .padding = {1, 1, 1, 1}}, DType::kF64,
                             1e-13, {.layout = layout, .threads = 2});
    expect_equals_definition({.x = {1, 3, 23, 23}, .weight = {9, 3, 7, 7}, .strides = {2, 2}, .padding = {3, 3, 3, 3}},
                             DType::kF64, 1e-13, {.layout = layout, .threads = 2});
    expect_equals_definition({.x = {2, 5, 6, 6}, .weight = {5, 1, 3, 3}, .padding = {1, 1, 1, 1}, .groups = 5},
                             DType::kF64, 1e-13, {.layout = layout});
  }
}

TEST(ReferenceConv2d, RoundsEachDTypeOnce) {
  const Convolution c{.x = {2, 8, 6, 6}, .weight = {12, 8, 3, 3}, .padding = {1, 1, 1, 1}};
  expect_equals_definition(c, DType::kF32, 6e-8, {});
  expect_equals_definition(c, DType::kBF16, 4e-3, {});
  expect_equals_definition(c, DType::kF16, 5e-4, {});
}

TEST(ReferenceConv2d, BitsDependNeitherOnThreadsNorOnStrides) {
  const Convolution c{.x = {3, 20, 9, 9}, .weight = {40, 20, 3, 3}, .strides = {2, 2}, .padding = {1, 1, 1, 1}};
  const Tensor x = random_tensor({DType::kF32, c.x}, 1);
  const Tensor weight = random_tensor({DType::kF32, c.weight}, 2);
  const Tensor dy = random_tensor({DType::kF32, c.y()}, 3);
  const auto run_all = [&](RunOptions options) {
    return std::vector{
        run_kernel1("conv2d", {x, weight}, c.attributes(), dy.type(), options),
        run_kernel1("conv2d_grad_input", {dy, weight}, c.with("input_size", c.x), x.type(), options),
        run_kernel1("conv2d_grad_weight", {dy, x}, c.with("kernel_size", c.weight), weight.type(), options)};
  };
  const auto expected = run_all({});
  for (const RunOptions options : {RunOptions{StrideOrder::kChannelsLast, 1}, RunOptions{StrideOrder::kDense, 3},
                                   RunOptions{StrideOrder::kReversed, 4}}) {
    const auto actual = run_all(options);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(bit_equal(actual[i], expected[i])) << i;
  }
}

TEST(ReferenceConv2d, AnEmptyBatchGivesNoImagesAndZeroWeightGradients) {
  const Convolution c{.x = {0, 3, 5, 5}, .weight = {4, 3, 3, 3}};
  const Tensor x(DType::kF32, c.x);
  const Tensor dy(DType::kF32, c.y());
  const Tensor weight = random_tensor({DType::kF32, c.weight}, 2);
  EXPECT_EQ(run_kernel1("conv2d", {x, weight}, c.attributes(), dy.type()).num_elements(), 0);
  EXPECT_EQ(run_kernel1("conv2d_grad_input", {dy, weight}, c.with("input_size", c.x), x.type()).num_elements(), 0);
  EXPECT_THAT(run_kernel1("conv2d_grad_weight", {dy, x}, c.with("kernel_size", c.weight), weight.type()).to_doubles(),
              Each(0.0));
}

TEST(ReferenceConv2d, NoInputChannelsGiveZeros) {
  const Convolution c{.x = {1, 0, 3, 3}, .weight = {2, 0, 3, 3}};
  EXPECT_THAT(run_kernel1("conv2d", {Tensor(DType::kF32, c.x), Tensor(DType::kF32, c.weight)}, c.attributes(),
                          {DType::kF32, c.y()})
                  .to_doubles(),
              ElementsAre(0, 0));
}

TEST(ReferenceConv2d, InfiniteWeightsDoNotMeetThePadding) {
  const Convolution c{.x = {1, 1, 2, 2}, .weight = {1, 1, 2, 2}, .padding = {1, 0, 1, 0}};
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor weight = Tensor::of<double>({1, 1, 2, 2}, {inf, 1, 1, 1});
  const Tensor x = Tensor::full({DType::kF64, c.x}, 1);
  EXPECT_THAT(run_kernel1("conv2d", {x, weight}, c.attributes(), {DType::kF64, c.y()}).to_doubles(),
              ElementsAre(1, 2, 2, inf));
}

}  // namespace
}  // namespace tessera::kernels
