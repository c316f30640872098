#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

TEST(ReferenceSoftmax, NormalisesAlongTheAxis) {
  // exp(log 1), exp(log 2), exp(log 5) and the like: shares known by hand.
  const Tensor x =
      Tensor::of<double>({1, 3, 2}, {std::log(1), std::log(4), std::log(2), std::log(4), std::log(5), std::log(8)});
  const std::vector<double> shares{0.125, 0.25, 0.25, 0.25, 0.625, 0.5};
  for (const StrideOrder layout : kStrideOrders) {
    const Tensor y = run_kernel1("softmax", {x}, {{"axis", int64_t{1}}}, x.type(), {.layout = layout, .threads = 2});
    EXPECT_THAT(y.to_doubles(), Pointwise(DoubleNear(1e-15), shares));
    const Tensor log_y = run_kernel1("log_softmax", {x}, {{"axis", int64_t{-2}}}, x.type(), {.layout = layout});
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(log_y.values<double>()[i], std::log(shares[i]), 1e-14);
  }
}

TEST(ReferenceSoftmax, ExtremeValuesNeitherOverflowNorVanish) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::of<double>({3, 3}, {1e300, -1e300, 1e300, 1000, 1001, -inf, -1e6, -1e6, -1e6});
  const Attributes last{{"axis", int64_t{-1}}};
  const double e = std::exp(1.0);
  const double third = 1.0 / 3;
  EXPECT_THAT(run_kernel1("softmax", {x}, last, x.type()).to_doubles(),
              Pointwise(DoubleNear(1e-15), {0.5, 0.0, 0.5, 1 / (1 + e), e / (1 + e), 0.0, third, third, third}));
  const auto log_y = run_kernel1("log_softmax", {x}, last, x.type()).to_doubles();
  EXPECT_NEAR(log_y[0], -std::log(2.0), 1e-15);
  EXPECT_EQ(log_y[1], -2e300);
  EXPECT_EQ(log_y[5], -inf);
}

TEST(ReferenceSoftmax, GradientsEqualDifferences) {
  const Tensor x = random_tensor({DType::kF64, {2, 4}}, 1);
  const Tensor dy = random_tensor({DType::kF64, {2, 4}}, 2);
  const Attributes axis{{"axis", int64_t{1}}};
  for (const std::string op : {"softmax", "log_softmax"}) {
    const auto loss = [&](const Tensor& x) {
      const Tensor y = run_kernel1(op, {x}, axis, x.type());
      double sum = 0;
      for (size_t i = 0; i < 8; ++i) sum += y.values<double>()[i] * dy.values<double>()[i];
      return sum;
    };
    const Tensor y = run_kernel1(op, {x}, axis, x.type());
    for (const StrideOrder layout : kStrideOrders) {
      const Tensor dx = run_kernel1(op + "_grad", {dy, y}, axis, x.type(), {.layout = layout});
      for (size_t i = 0; i < 8; ++i) {
        Tensor moved = x.clone();
        moved.values<double>()[i] += 1e-5;
        const double above = loss(moved);
        moved.values<double>()[i] -= 2e-5;
        EXPECT_NEAR(dx.values<double>()[i], (above - loss(moved)) / 2e-5, 1e-9) << op << i;
      }
    }
  }
}

TEST(ReferenceCrossEntropy, IsMinusTheLogOfTheLabelsShare) {
  const Tensor logits = Tensor::of<double>({2, 3}, {std::log(1), std::log(2), std::log(5), 0, 0, 0});
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    const Tensor labels = Tensor::of<int32_t>({2}, {2, 0}).cast(dtype);
    const auto result = run_kernel("softmax_cross_entropy", {logits, labels}, {}, {{DType::kF64, {2}}, logits.type()},
                                   {.layout = StrideOrder::kReversed, .threads = 2});
    EXPECT_THAT(result[0].to_doubles(), Pointwise(DoubleNear(1e-15), {-std::log(0.625), std::log(3.0)}));
    EXPECT_THAT(result[1].to_doubles(), Pointwise(DoubleNear(1e-15), {0.125, 0.25, 0.625, 1.0 / 3, 1.0 / 3, 1.0 / 3}));
    const Tensor dx = run_kernel1("softmax_cross_entropy_grad", {result[1], labels, Tensor::of<double>({2}, {2, -3})},
                                  {}, logits.type(), {.layout = StrideOrder::kReversed});
    EXPECT_THAT(dx.to_doubles(), Pointwise(DoubleNear(1e-15), {0.25, 0.5, -0.75, 2.0, -1.0, -1.0}));
  }
}

TEST(ReferenceCrossEntropy, ALabelThatIsNoClassGivesNaNAndNoGradient) {
  const Tensor logits = Tensor::full({DType::kF32, {3, 2}}, 0);
  const Tensor labels = Tensor::of<int32_t>({3}, {-1, 1, 2});
  const auto result =
      run_kernel("softmax_cross_entropy", {logits, labels}, {}, {{DType::kF32, {3}}, {DType::kF32, {3, 2}}});
  EXPECT_TRUE(std::isnan(result[0].values<float>()[0]));
  EXPECT_FLOAT_EQ(result[0].values<float>()[1], std::log(2.0F));
  EXPECT_TRUE(std::isnan(result[0].values<float>()[2]));
  const Tensor dx = run_kernel1("softmax_cross_entropy_grad", {result[1], labels, Tensor::full({DType::kF32, {3}}, 1)},
                                {}, {DType::kF32, {3, 2}});
  EXPECT_THAT(dx.to_doubles(), ElementsAre(0, 0, 0.5, -0.5, 0, 0));
}

TEST(ReferenceSoftmax, EmptyRowsAndNoRowsAreLegal) {
  for (const Shape& shape : {Shape{0, 5}, Shape{3, 0}}) {
    EXPECT_EQ(run_kernel1("softmax", {Tensor(DType::kF32, shape)}, {{"axis", int64_t{1}}}, {DType::kF32, shape})
                  .num_elements(),
              0);
  }
}

}  // namespace
}  // namespace tessera::kernels
