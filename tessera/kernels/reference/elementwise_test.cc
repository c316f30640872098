#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor vector(const std::vector<double>& values, DType dtype = DType::kF64) {
  return Tensor::of<double>({static_cast<int64_t>(values.size())}, std::span<const double>(values)).cast(dtype);
}

// The kernel's result on vectors of one dtype.
std::vector<double> on_vectors(const std::string& op, const std::vector<std::vector<double>>& inputs, DType dtype,
                               DType result, const Attributes& attributes = {}) {
  std::vector<Tensor> tensors;
  for (const auto& values : inputs) tensors.push_back(vector(values, dtype));
  return run_kernel1(op, tensors, attributes, {result, tensors[0].shape()}).to_doubles();
}

TEST(ReferenceElementwise, BroadcastsOperandsOfAnyStrides) {
  const Tensor x = Tensor::of<float>({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor y = Tensor::of<float>({2, 1}, {10, 100});
  for (const StrideOrder layout : kDenseAndReversed) {
    const Tensor sum = run_kernel1("add", {x, y}, {}, {DType::kF32, {2, 2, 3}}, {.layout = layout});
    EXPECT_THAT(sum.to_doubles(), ElementsAre(11, 12, 13, 101, 102, 103, 14, 15, 16, 104, 105, 106));
    const Tensor ratio = run_kernel1("div", {y, x}, {}, {DType::kF32, {2, 2, 3}}, {.layout = layout});
    EXPECT_EQ(ratio.to_doubles()[4], 50);
  }
  EXPECT_EQ(
      run_kernel1("mul", {Tensor::zeros({DType::kF32, {0, 3}}), vector({2}, DType::kF32)}, {}, {DType::kF32, {0, 3}})
          .num_elements(),
      0);
}

TEST(ReferenceElementwise, EveryNumericDtypeAddsMultipliesAndCompares) {
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8}) {
    SCOPED_TRACE(to_string(dtype));
    EXPECT_THAT(on_vectors("add", {{7, 3}, {2, 3}}, dtype, dtype), ElementsAre(9, 6));
    EXPECT_THAT(on_vectors("sub", {{7, 3}, {2, 3}}, dtype, dtype), ElementsAre(5, 0));
    EXPECT_THAT(on_vectors("mul", {{7, 3}, {2, 3}}, dtype, dtype), ElementsAre(14, 9));
    EXPECT_THAT(on_vectors("maximum", {{7, 3}, {2, 4}}, dtype, dtype), ElementsAre(7, 4));
    EXPECT_THAT(on_vectors("minimum", {{7, 3}, {2, 4}}, dtype, dtype), ElementsAre(2, 3));
    EXPECT_THAT(on_vectors("pow", {{2, 3, 5}, {7, 2, 0}}, dtype, dtype), ElementsAre(128, 9, 1));
    EXPECT_THAT(on_vectors("square", {{7, 3}}, dtype, dtype), ElementsAre(49, 9));
    EXPECT_THAT(on_vectors("less", {{7, 3, 4}, {2, 3, 5}}, dtype, DType::kBool), ElementsAre(0, 0, 1));
    EXPECT_THAT(on_vectors("less_equal", {{7, 3, 4}, {2, 3, 5}}, dtype, DType::kBool), ElementsAre(0, 1, 1));
    EXPECT_THAT(on_vectors("greater", {{7, 3, 4}, {2, 3, 5}}, dtype, DType::kBool), ElementsAre(1, 0, 0));
    EXPECT_THAT(on_vectors("greater_equal", {{7, 3, 4}, {2, 3, 5}}, dtype, DType::kBool), ElementsAre(1, 1, 0));
    EXPECT_THAT(on_vectors("equal", {{7, 3}, {2, 3}}, dtype, DType::kBool), ElementsAre(0, 1));
    EXPECT_THAT(on_vectors("not_equal", {{7, 3}, {2, 3}}, dtype, DType::kBool), ElementsAre(1, 0));
  }
}

TEST(ReferenceElementwise, IntegersWrapAround) {
  constexpr double kMax = 2147483647;
  EXPECT_THAT(on_vectors("add", {{kMax}, {1}}, DType::kI32, DType::kI32), ElementsAre(-kMax - 1));
  EXPECT_THAT(on_vectors("mul", {{65536}, {65536}}, DType::kI32, DType::kI32), ElementsAre(0));
  EXPECT_THAT(on_vectors("neg", {{-kMax - 1, 5}}, DType::kI32, DType::kI32), ElementsAre(-kMax - 1, -5));
  EXPECT_THAT(on_vectors("sub", {{1}, {2}}, DType::kU8, DType::kU8), ElementsAre(255));
  EXPECT_THAT(on_vectors("pow", {{2, -1, -1, 1, 0}, {-1, -3, -2, -9, 0}}, DType::kI32, DType::kI32),
              ElementsAre(0, -1, 1, 1, 1));
}

TEST(ReferenceElementwise, NanWinsOfTwoAndSurvivesReluAndSign) {
  for (const auto& [x, y] : {std::pair{kNan, 1.0}, std::pair{1.0, kNan}}) {
    EXPECT_TRUE(std::isnan(on_vectors("maximum", {{x}, {y}}, DType::kF32, DType::kF32)[0]));
    EXPECT_TRUE(std::isnan(on_vectors("minimum", {{x}, {y}}, DType::kF16, DType::kF16)[0]));
  }
  EXPECT_TRUE(std::isnan(on_vectors("relu", {{kNan}}, DType::kF64, DType::kF64)[0]));
  EXPECT_TRUE(std::isnan(on_vectors("sign", {{kNan}}, DType::kBF16, DType::kBF16)[0]));
  EXPECT_THAT(on_vectors("is_finite", {{1, kInf, -kInf, kNan}}, DType::kF16, DType::kBool), ElementsAre(1, 0, 0, 0));
}

struct Known {
  const char* op;
  std::vector<double> x;
  std::vector<double> y;
};

TEST(ReferenceElementwise, FunctionsHaveTheirKnownValues) {
  const double e = std::exp(1.0);
  const Known table[] = {{"neg", {-2, 0, 3}, {2, 0, -3}},
                         {"abs", {-2, 0, 3}, {2, 0, 3}},
                         {"sign", {-2, 0, 3}, {-1, 0, 1}},
                         {"floor", {-1.5, 0, 2.75}, {-2, 0, 2}},
                         {"sqrt", {4, 2.25, 0}, {2, 1.5, 0}},
                         {"rsqrt", {4, 0.25, 1}, {0.5, 2, 1}},
                         {"reciprocal", {4, -0.5, 1}, {0.25, -2, 1}},
                         {"exp", {0, 1, -1}, {1, e, 1 / e}},
                         {"log", {1, e, 1 / e}, {0, 1, -1}},
                         {"expm1", {0, 1e-10, std::log(2)}, {0, 1e-10, 1}},
                         {"log1p", {0, 1e-10, e - 1}, {0, 1e-10, 1}},
                         {"sinh", {0, 1e-10, std::log(2)}, {0, 1e-10, 0.75}},
                         {"cosh", {0, 1e-10, std::log(2)}, {1, 1, 1.25}},
                         {"asinh", {0, 1e-10, 0.75}, {0, 1e-10, std::log(2)}},
                         {"atanh", {0, 1e-10, 0.6}, {0, 1e-10, std::log(2)}},
                         {"sin", {0, std::acos(-1) / 2, std::acos(-1) / 6}, {0, 1, 0.5}},
                         {"cos", {0, std::acos(-1), std::acos(-1) / 3}, {1, -1, 0.5}},
                         {"relu", {-1, 0, 2}, {0, 0, 2}},
                         {"sigmoid", {0, std::log(3), -1000}, {0.5, 0.75, 0}},
                         {"tanh", {0, std::log(2), 1000}, {0, 0.6, 1}}};
  for (const auto& [op, x, y] : table) {
    SCOPED_TRACE(op);
    EXPECT_THAT(on_vectors(op, {x}, DType::kF64, DType::kF64), Pointwise(DoubleNear(1e-15), y));
    EXPECT_THAT(on_vectors(op, {x}, DType::kF32, DType::kF32), Pointwise(DoubleNear(3e-7), y));
    EXPECT_THAT(on_vectors(op, {x}, DType::kBF16, DType::kBF16), Pointwise(DoubleNear(2e-2), y));
    EXPECT_THAT(on_vectors(op, {x}, DType::kF16, DType::kF16), Pointwise(DoubleNear(2e-3), y));
  }
}

// Values of Hendrycks and Gimpel's formulas, computed with 30 digits.
TEST(ReferenceElementwise, GeluHasBothForms) {
  EXPECT_THAT(on_vectors("gelu", {{1, -2}}, DType::kF64, DType::kF64, {{"approximate", false}}),
              Pointwise(DoubleNear(1e-14), {0.841344746068543, -0.0455002638963584}));
  EXPECT_THAT(on_vectors("gelu", {{1, -2}}, DType::kF64, DType::kF64, {{"approximate", true}}),
              Pointwise(DoubleNear(1e-12), {0.841191990608276, -0.045402305912042}));
  for (const bool approximate : {false, true}) {
    const Attributes form{{"approximate", approximate}};
    const double x = 0.7;
    const double h = 1e-5;
    const auto at = [&](double v) { return on_vectors("gelu", {{v}}, DType::kF64, DType::kF64, form)[0]; };
    EXPECT_NEAR(on_vectors("gelu_grad", {{3}, {x}}, DType::kF64, DType::kF64, form)[0],
                3 * (at(x + h) - at(x - h)) / (2 * h), 1e-9);
  }
}

TEST(ReferenceElementwise, ActivationGradientsUseTheResult) {
  EXPECT_THAT(on_vectors("relu_grad", {{3, 4, 5}, {2, 0, 1}}, DType::kF32, DType::kF32), ElementsAre(3, 0, 5));
  EXPECT_THAT(on_vectors("sigmoid_grad", {{4, 4}, {0.5, 0.25}}, DType::kF32, DType::kF32), ElementsAre(1, 0.75));
  EXPECT_THAT(on_vectors("tanh_grad", {{4, 4}, {0.5, 0}}, DType::kF32, DType::kF32), ElementsAre(3, 4));
}

TEST(ReferenceElementwise, LogicAndSelect) {
  const Tensor a = Tensor::of<bool>({4}, {false, false, true, true});
  const Tensor b = Tensor::of<bool>({4}, {false, true, false, true});
  const auto logic = [&](const char* op) { return run_kernel1(op, {a, b}, {}, a.type()).to_doubles(); };
  EXPECT_THAT(logic("logical_and"), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(logic("logical_or"), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(logic("logical_xor"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(run_kernel1("logical_not", {a}, {}, a.type()).to_doubles(), ElementsAre(1, 1, 0, 0));
  for (const StrideOrder layout : kDenseAndReversed) {
    const Tensor chosen = run_kernel1(
        "select", {Tensor::of<bool>({2, 1}, {true, false}), vector({1, 2}, DType::kI64), Tensor::scalar(int64_t{9})},
        {}, {DType::kI64, {2, 2}}, {.layout = layout});
    EXPECT_THAT(chosen.to_doubles(), ElementsAre(1, 2, 9, 9));
  }
}

TEST(ReferenceElementwise, CastRoundsAndSaturates) {
  const Tensor x = vector({300, -1, kNan, 2.7});
  EXPECT_THAT(run_kernel1("cast", {x}, {{"dtype", DType::kU8}}, {DType::kU8, {4}}).to_doubles(),
              ElementsAre(255, 0, 0, 2));
  EXPECT_THAT(run_kernel1("cast", {vector({0, -0.5, 3})}, {{"dtype", DType::kBool}}, {DType::kBool, {3}}).to_doubles(),
              ElementsAre(0, 1, 1));
  EXPECT_THAT(run_kernel1("cast", {vector({257})}, {{"dtype", DType::kBF16}}, {DType::kBF16, {1}}).to_doubles(),
              ElementsAre(256));
}

TEST(ReferenceElementwise, InPlacePairsGiveTheSameResult) {
  Tensor x = vector({1, 2, 3}, DType::kF32);
  const TensorView views[] = {x.view(), x.view()};
  const ParallelFor serial(1);
  const auto kernel = reference_kernels().find({.op = "mul", .inputs = {x.view(), x.view()}, .outputs = {x.view()}});
  ASSERT_TRUE(kernel);
  EXPECT_THAT(kernel->in_place, ElementsAre(std::pair(0, 0), std::pair(1, 0)));
  const Attributes none;
  kernel->run({views, std::span(views, 1), none, {}, serial});
  EXPECT_THAT(x.to_doubles(), ElementsAre(1, 4, 9));
}

}  // namespace
}  // namespace tessera::kernels
