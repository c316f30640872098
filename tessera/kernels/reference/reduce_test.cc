#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

Attributes over(const Ints& axes, bool keep_dims = false) { return {{"axes", axes}, {"keep_dims", keep_dims}}; }

TEST(ReferenceReduce, ReducesTheNamedDims) {
  const Tensor x = Tensor::of<float>({2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  for (const StrideOrder layout : kDenseAndReversed) {
    const auto reduced = [&](const char* op, const Ints& axes, const Shape& shape, bool keep_dims = false) {
      return run_kernel1(op, {x}, over(axes, keep_dims), {DType::kF32, shape}, {.layout = layout}).to_doubles();
    };
    EXPECT_THAT(reduced("reduce_sum", {0, 2}, {3}), ElementsAre(18, 26, 34));
    EXPECT_THAT(reduced("reduce_sum", {1}, {2, 1, 2}, true), ElementsAre(9, 12, 27, 30));
    EXPECT_THAT(reduced("reduce_mean", {0, 1, 2}, {}), ElementsAre(6.5));
    EXPECT_THAT(reduced("reduce_max", {1}, {2, 2}), ElementsAre(5, 6, 11, 12));
    EXPECT_THAT(reduced("reduce_min", {0}, {3, 2}), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(reduced("reduce_prod", {2}, {2, 3}), ElementsAre(2, 12, 30, 56, 90, 132));
    EXPECT_THAT(reduced("reduce_sum", {}, {2, 3, 2}), testing::ElementsAreArray(x.to_doubles()));
  }
}

TEST(ReferenceReduce, EveryDtypeReduces) {
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8}) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor x = Tensor::of<double>({3}, {2, 3, 4}).cast(dtype);
    const auto all = [&](const char* op) { return run_kernel1(op, {x}, over({0}), {dtype, {}}).item(); };
    EXPECT_EQ(all("reduce_sum"), 9);
    EXPECT_EQ(all("reduce_prod"), 24);
    EXPECT_EQ(all("reduce_max"), 4);
    EXPECT_EQ(all("reduce_min"), 2);
  }
  const Tensor half = Tensor::full({DType::kF16, {4096}}, 1);
  // In f16 the sum would stop at 2048.
  EXPECT_EQ(run_kernel1("reduce_sum", {half}, over({0}), {DType::kF16, {}}).item(), 4096);
  EXPECT_EQ(run_kernel1("reduce_mean", {half}, over({0}), {DType::kF16, {}}).item(), 1);
}

TEST(ReferenceReduce, EmptyReductionsAreTheIdentity) {
  const auto over_nothing = [](const char* op, DType dtype) {
    return run_kernel1(op, {Tensor(dtype, {0, 2})}, over({0}), {dtype, {2}}).to_doubles();
  };
  EXPECT_THAT(over_nothing("reduce_sum", DType::kF32), ElementsAre(0, 0));
  EXPECT_THAT(over_nothing("reduce_prod", DType::kBF16), ElementsAre(1, 1));
  EXPECT_THAT(over_nothing("reduce_max", DType::kF16), ElementsAre(-INFINITY, -INFINITY));
  EXPECT_THAT(over_nothing("reduce_min", DType::kF64), ElementsAre(INFINITY, INFINITY));
  EXPECT_THAT(over_nothing("reduce_max", DType::kI32), ElementsAre(-2147483648.0, -2147483648.0));
  EXPECT_THAT(over_nothing("reduce_min", DType::kU8), ElementsAre(255, 255));
  EXPECT_TRUE(std::isnan(over_nothing("reduce_mean", DType::kF32)[0]));
  EXPECT_THAT(over_nothing("reduce_all", DType::kBool), ElementsAre(1, 1));
  EXPECT_THAT(over_nothing("reduce_any", DType::kBool), ElementsAre(0, 0));
  EXPECT_EQ(run_kernel1("reduce_sum", {Tensor(DType::kF32, {2, 0})}, over({0}), {DType::kF32, {0}}).num_elements(), 0);
}

TEST(ReferenceReduce, AllAndAny) {
  const Tensor x = Tensor::of<bool>({3, 2}, {true, true, true, false, false, false});
  EXPECT_THAT(run_kernel1("reduce_all", {x}, over({1}), {DType::kBool, {3}}).to_doubles(), ElementsAre(1, 0, 0));
  EXPECT_THAT(run_kernel1("reduce_any", {x}, over({1}), {DType::kBool, {3}}).to_doubles(), ElementsAre(1, 1, 0));
}

TEST(ReferenceReduce, ArgmaxTakesTheFirstAndNanFirst) {
  const Tensor x = Tensor::of<float>({3, 3}, {1, 5, 5, -2, -3, -2, 0, std::nanf(""), 9});
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(run_kernel1("argmax", {x}, {{"axis", int64_t{1}}}, {DType::kI32, {3}}, {.layout = layout}).to_doubles(),
                ElementsAre(1, 0, 1));
    EXPECT_THAT(run_kernel1("argmax", {x}, {{"axis", int64_t{0}}}, {DType::kI32, {3}}, {.layout = layout}).to_doubles(),
                ElementsAre(0, 2, 2));
  }
}

TEST(ReferenceReduce, TopKIsDescendingWithTheLowerIndexFirst) {
  const Tensor x = Tensor::of<int32_t>({2, 5}, {3, 7, 3, 9, 7, 1, 1, 1, 0, 1});
  for (const StrideOrder layout : kDenseAndReversed) {
    const auto results = run_kernel("top_k", {x}, {{"k", int64_t{4}}}, {{DType::kI32, {2, 4}}, {DType::kI32, {2, 4}}},
                                    {.layout = layout});
    EXPECT_THAT(results[0].to_doubles(), ElementsAre(9, 7, 7, 3, 1, 1, 1, 1));
    EXPECT_THAT(results[1].to_doubles(), ElementsAre(3, 1, 4, 0, 0, 1, 2, 4));
    const Tensor dx = run_kernel1("top_k_grad", {results[0].cast(DType::kF32), results[1]}, {{"size", int64_t{5}}},
                                  {DType::kF32, {2, 5}}, {.layout = layout});
    EXPECT_THAT(dx.to_doubles(), ElementsAre(3, 7, 0, 9, 7, 1, 1, 1, 0, 1));
  }
}

TEST(ReferenceReduce, CumsumRunsBothWaysWithAndWithoutItself) {
  const Tensor x = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto sums = [&](int64_t axis, bool exclusive, bool reverse, StrideOrder layout) {
    return run_kernel1("cumsum", {x}, {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}, x.type(),
                       {.layout = layout})
        .to_doubles();
  };
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(sums(1, false, false, layout), ElementsAre(1, 3, 6, 4, 9, 15));
    EXPECT_THAT(sums(1, true, false, layout), ElementsAre(0, 1, 3, 0, 4, 9));
    EXPECT_THAT(sums(1, false, true, layout), ElementsAre(6, 5, 3, 15, 11, 6));
    EXPECT_THAT(sums(1, true, true, layout), ElementsAre(5, 3, 0, 11, 6, 0));
    EXPECT_THAT(sums(0, false, false, layout), ElementsAre(1, 2, 3, 5, 7, 9));
  }
}

}  // namespace
}  // namespace tessera::kernels
