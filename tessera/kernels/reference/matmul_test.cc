#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::Each;
using testing::ElementsAre;

// op(lhs) op(rhs) in double, from row-major elements.
std::vector<double> direct_product(const Tensor& lhs, const Tensor& rhs, bool ta, bool tb, int64_t m, int64_t n,
                                   int64_t k) {
  const auto a = lhs.to_doubles();
  const auto b = rhs.to_doubles();
  std::vector<double> result;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += a[static_cast<size_t>(ta ? p * m + i : i * k + p)] * b[static_cast<size_t>(tb ? j * k + p : p * n + j)];
      }
      result.push_back(sum);
    }
  }
  return result;
}

TEST(ReferenceMatmul, EqualsTheDefinitionForEveryFlagSizeAndStride) {
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 4}, {5, 33, 7}, {9, 8, 0}, {4, 70, 65}, {13, 9, 31}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Tensor lhs = random_tensor({DType::kF64, ta ? Shape{k, m} : Shape{m, k}}, 1);
        const Tensor rhs = random_tensor({DType::kF64, tb ? Shape{n, k} : Shape{k, n}}, 2);
        const auto expected = direct_product(lhs, rhs, ta, tb, m, n, k);
        for (const StrideOrder layout : {StrideOrder::kDense, StrideOrder::kReversed}) {
          const Tensor actual = run_kernel1("matmul", {lhs, rhs}, {{"transpose_a", ta}, {"transpose_b", tb}},
                                            {DType::kF64, {m, n}}, {.layout = layout});
          EXPECT_LT(relative_error(actual, expected), 1e-14) << m << " " << n << " " << k << " " << ta << tb;
        }
      }
    }
  }
}

TEST(ReferenceMatmul, EachLeadingIndexIsAProductOfItsOwn) {
  const Tensor lhs = random_tensor({DType::kF32, {2, 3, 4, 5}}, 1);
  const Tensor rhs = random_tensor({DType::kF32, {2, 3, 6, 5}}, 2);
  for (const StrideOrder layout : {StrideOrder::kDense, StrideOrder::kChannelsLast, StrideOrder::kReversed}) {
    const Tensor actual = run_kernel1("batch_matmul", {lhs, rhs}, {{"transpose_a", false}, {"transpose_b", true}},
                                      {DType::kF32, {2, 3, 4, 6}}, {.layout = layout, .threads = 2});
    for (int64_t entry = 0; entry < 6; ++entry) {
      const auto part = [&](const Tensor& tensor, int64_t rows, int64_t columns) {
        return Tensor::of(Shape{rows, columns},
                          std::span<const float>(tensor.values<float>().subspan(
                              static_cast<size_t>(entry * rows * columns), static_cast<size_t>(rows * columns))));
      };
      EXPECT_LT(
          relative_error(part(actual, 4, 6), direct_product(part(lhs, 4, 5), part(rhs, 6, 5), false, true, 4, 6, 5)),
          1e-6);
    }
  }
}

TEST(ReferenceMatmul, BitsDependNeitherOnThreadsNorOnStrides) {
  const Tensor lhs = random_tensor({DType::kF32, {37, 129}}, 1);
  const Tensor rhs = random_tensor({DType::kF32, {129, 75}}, 2);
  const Attributes attributes{{"transpose_a", false}, {"transpose_b", false}};
  const Type result{DType::kF32, {37, 75}};
  const Tensor one = run_kernel1("matmul", {lhs, rhs}, attributes, result);
  for (const int threads : {2, 3, 4}) {
    EXPECT_TRUE(
        bit_equal(run_kernel1("matmul", {lhs, rhs}, attributes, result, {StrideOrder::kReversed, threads}), one));
  }
}

TEST(ReferenceMatmul, IntegersWrapAround) {
  const Attributes attributes{{"transpose_a", false}, {"transpose_b", false}};
  const Tensor large = Tensor::of<int32_t>({1, 2}, {2147483647, -3});
  const Tensor product =
      run_kernel1("matmul", {large, Tensor::of<int32_t>({2, 1}, {2, 1})}, attributes, {DType::kI32, {1, 1}});
  EXPECT_EQ(product.values<int32_t>()[0], -5);
  const Tensor bytes =
      run_kernel1("matmul", {Tensor::of<uint8_t>({1, 2}, {200, 100}), Tensor::of<uint8_t>({2, 1}, {1, 1})}, attributes,
                  {DType::kU8, {1, 1}});
  EXPECT_EQ(bytes.values<uint8_t>()[0], 44);
}

TEST(ReferenceMatmul, HalfTypesAreRoundedAtTheEndOnly) {
  // 1 + 256 * 2^-9 is 1.5; added one by one in bf16 the small terms would vanish.
  std::vector<double> terms(257, 0x1p-9);
  terms[0] = 1;
  const Tensor lhs = Tensor::of<double>({1, 257}, std::span<const double>(terms)).cast(DType::kBF16);
  const Tensor rhs = Tensor::full({DType::kBF16, {257, 1}}, 1);
  const Tensor sum =
      run_kernel1("matmul", {lhs, rhs}, {{"transpose_a", false}, {"transpose_b", false}}, {DType::kBF16, {1, 1}});
  EXPECT_EQ(sum.item(), 1.5);
}

TEST(ReferenceMatmul, AnEmptyContractionGivesZeros) {
  const Tensor product = run_kernel1("matmul", {Tensor(DType::kF32, {2, 0}), Tensor(DType::kF32, {0, 3})},
                                     {{"transpose_a", false}, {"transpose_b", false}}, {DType::kF32, {2, 3}});
  EXPECT_THAT(product.to_doubles(), Each(0.0));
}

TEST(ReferenceBiasAdd, AddsAlongTheSecondDim) {
  const Tensor x = Tensor::of<float>({1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor bias = Tensor::of<float>({2}, {10, 20});
  for (const StrideOrder layout : {StrideOrder::kDense, StrideOrder::kChannelsLast, StrideOrder::kReversed}) {
    EXPECT_THAT(run_kernel1("bias_add", {x, bias}, {}, x.type(), {.layout = layout}).to_doubles(),
                ElementsAre(10, 11, 12, 13, 24, 25, 26, 27));
  }
  EXPECT_THAT(run_kernel1("bias_add", {Tensor::of<int32_t>({1, 2}, {2147483647, 1}), Tensor::of<int32_t>({2}, {1, 1})},
                          {}, {DType::kI32, {1, 2}})
                  .to_doubles(),
              ElementsAre(-2147483648.0, 2));
}

}  // namespace
}  // namespace tessera::kernels
