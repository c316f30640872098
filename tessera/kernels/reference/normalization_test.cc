#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

Attributes groups(Ints counts, bool grouped = false) { return {{"counts", std::move(counts)}, {"grouped", grouped}}; }
Attributes groups(Ints counts, bool grouped, double eps) {
  return {{"counts", std::move(counts)}, {"grouped", grouped}, {"eps", eps}};
}

// Rows [first, last) of a tensor.
Tensor rows_of(const Tensor& x, int64_t first, int64_t last) {
  Shape shape = x.shape();
  shape[0] = last - first;
  const auto row = static_cast<size_t>(x.num_elements() / x.shape()[0]);
  return Tensor::of(shape, std::span<const double>(x.values<double>().subspan(
                               static_cast<size_t>(first) * row, static_cast<size_t>(last - first) * row)));
}

TEST(ReferenceBatchNorm, StatisticsAreThoseOfEachChannel) {
  const Tensor x = Tensor::of<float>({2, 2, 1, 2}, {1, 3, 10, 10, 5, 7, 10, 14});
  for (const StrideOrder layout : kStrideOrders) {
    const Tensor mean = run_kernel1("batch_norm_mean", {x}, groups({4}), {DType::kF32, {2}}, {.layout = layout});
    EXPECT_THAT(mean.to_doubles(), ElementsAre(4, 11));
    const Tensor variance =
        run_kernel1("batch_norm_variance", {x, mean}, groups({4}), {DType::kF32, {2}}, {.layout = layout});
    EXPECT_THAT(variance.to_doubles(), ElementsAre(5, 3));
  }
}

TEST(ReferenceBatchNorm, SumsOfPartsOverTheGlobalCountAddUpToTheMean) {
  const Tensor x = random_tensor({DType::kF64, {5, 19, 3, 3}}, 1);
  const Type statistics{DType::kF64, {19}};
  const Tensor whole = run_kernel1("batch_norm_mean", {x}, groups({45}), statistics);
  const Tensor first = run_kernel1("batch_norm_mean", {rows_of(x, 0, 3)}, groups({45}), statistics);
  const Tensor second = run_kernel1("batch_norm_mean", {rows_of(x, 3, 5)}, groups({45}), statistics);
  for (size_t c = 0; c < 19; ++c) {
    EXPECT_NEAR(first.values<double>()[c] + second.values<double>()[c], whole.values<double>()[c], 1e-15);
  }
}

TEST(ReferenceBatchNorm, EachGroupOfRowsEqualsABatchOfItsOwn) {
  const Tensor x = random_tensor({DType::kF64, {5, 3, 2, 2}}, 1);
  const Tensor dy = random_tensor({DType::kF64, {5, 3, 2, 2}}, 2);
  const Tensor gamma = random_tensor({DType::kF64, {3}}, 3);
  const Tensor beta = random_tensor({DType::kF64, {3}}, 4);
  // mean, variance, y, sum_dy, sum_dy_xhat, dx
  const auto run_all = [&](const Tensor& x, const Tensor& dy, const Ints& counts, bool grouped, StrideOrder layout) {
    const Type statistics{DType::kF64, grouped ? Shape{static_cast<int64_t>(counts.size()), 3} : Shape{3}};
    const RunOptions options{layout, 2};
    const Attributes plain = groups(counts, grouped);
    const Attributes with_eps = groups(counts, grouped, 1e-3);
    const Tensor mean = run_kernel1("batch_norm_mean", {x}, plain, statistics, options);
    const Tensor variance = run_kernel1("batch_norm_variance", {x, mean}, plain, statistics, options);
    const Tensor y = run_kernel1("batch_norm", {x, mean, variance, gamma, beta}, with_eps, x.type(), options);
    const auto sums =
        run_kernel("batch_norm_grad_reduce", {dy, x, mean, variance}, with_eps, {statistics, statistics}, options);
    const Tensor dx = run_kernel1("batch_norm_grad_input", {dy, x, mean, variance, gamma, sums[0], sums[1]}, with_eps,
                                  x.type(), options);
    return std::vector{mean, variance, y, sums[0], sums[1], dx};
  };
  for (const StrideOrder layout : kStrideOrders) {
    const auto grouped = run_all(x, dy, {12, 8}, true, layout);
    const auto first = run_all(rows_of(x, 0, 3), rows_of(dy, 0, 3), {12}, false, layout);
    const auto second = run_all(rows_of(x, 3, 5), rows_of(dy, 3, 5), {8}, false, layout);
    for (size_t i = 0; i < grouped.size(); ++i) {
      auto expected = first[i].to_doubles();
      const auto more = second[i].to_doubles();
      expected.insert(expected.end(), more.begin(), more.end());
      EXPECT_EQ(grouped[i].to_doubles(), expected) << i;
    }
  }
}

TEST(ReferenceBatchNorm, GradientsEqualDifferencesOfTheWholeFunction) {
  const Shape shape{4, 2, 3};
  const Tensor x = random_tensor({DType::kF64, shape}, 1);
  const Tensor dy = random_tensor({DType::kF64, shape}, 2);
  const Tensor gamma = Tensor::of<double>({2}, {1.5, -0.5});
  const Tensor beta = Tensor::of<double>({2}, {0.25, 2});
  const Type statistics{DType::kF64, {2}};
  const Attributes plain = groups({12});
  const Attributes with_eps = groups({12}, false, 1e-2);
  const auto loss = [&](const Tensor& x) {
    const Tensor mean = run_kernel1("batch_norm_mean", {x}, plain, statistics);
    const Tensor variance = run_kernel1("batch_norm_variance", {x, mean}, plain, statistics);
    const Tensor y = run_kernel1("batch_norm", {x, mean, variance, gamma, beta}, with_eps, x.type());
    double sum = 0;
    for (size_t i = 0; i < y.values<double>().size(); ++i) sum += y.values<double>()[i] * dy.values<double>()[i];
    return sum;
  };
  const Tensor mean = run_kernel1("batch_norm_mean", {x}, plain, statistics);
  const Tensor variance = run_kernel1("batch_norm_variance", {x, mean}, plain, statistics);
  const auto sums = run_kernel("batch_norm_grad_reduce", {dy, x, mean, variance}, with_eps, {statistics, statistics});
  const Tensor dx =
      run_kernel1("batch_norm_grad_input", {dy, x, mean, variance, gamma, sums[0], sums[1]}, with_eps, x.type());
  for (size_t i = 0; i < dx.values<double>().size(); ++i) {
    Tensor moved = x.clone();
    moved.values<double>()[i] += 1e-5;
    const double above = loss(moved);
    moved.values<double>()[i] -= 2e-5;
    EXPECT_NEAR((above - loss(moved)) / 2e-5, dx.values<double>()[i], 1e-8) << i;
  }
}

TEST(ReferenceBatchNorm, HalfImagesHaveStatisticsInF32) {
  const Tensor x = Tensor::of<float>({2, 1}, {1, 2}).cast(DType::kBF16);
  const Tensor mean = run_kernel1("batch_norm_mean", {x}, groups({2}), {DType::kF32, {1}});
  EXPECT_EQ(mean.item(), 1.5);
  const Tensor variance = run_kernel1("batch_norm_variance", {x, mean}, groups({2}), {DType::kF32, {1}});
  EXPECT_EQ(variance.item(), 0.25);
  const Tensor one = Tensor::scalar(1.0F).reshaped({1});
  // gamma may be of either dtype.
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor y = run_kernel1("batch_norm", {x, mean, variance, one.cast(dtype), one.cast(dtype)},
                                 groups({2}, false, 0.0), {DType::kBF16, {2, 1}});
    EXPECT_THAT(y.to_doubles(), ElementsAre(0, 2));
  }
}

TEST(ReferenceBatchNorm, AnEmptyPartOfABatchSumsToZero) {
  const Tensor mean =
      run_kernel1("batch_norm_mean", {Tensor(DType::kF32, {0, 2, 3, 3})}, groups({36}), {DType::kF32, {2}});
  EXPECT_THAT(mean.to_doubles(), ElementsAre(0, 0));
}

TEST(ReferenceMovingAverage, ScalesTheValueOfEachGroup) {
  const Tensor moving = Tensor::of<double>({2, 2}, {1, 2, 3, 4});
  const Tensor value = Tensor::of<double>({2, 2}, {10, 20, 30, 40});
  const auto run = [&](Doubles scales, StrideOrder layout) {
    return run_kernel1("moving_average", {moving, value}, {{"momentum", 0.5}, {"scales", std::move(scales)}},
                       moving.type(), {.layout = layout})
        .to_doubles();
  };
  for (const StrideOrder layout : kStrideOrders) {
    EXPECT_THAT(run({1}, layout), ElementsAre(5.5, 11, 16.5, 22));
    EXPECT_THAT(run({2, 4}, layout), ElementsAre(10.5, 21, 61.5, 82));
  }
}

// y, mean and inv_std of a matrix, in double.
struct LayerNorm {
  std::vector<double> y, mean, inv_std;
  LayerNorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, size_t rows, double eps) {
    const auto values = x.to_doubles();
    const size_t size = values.size() / rows;
    for (size_t r = 0; r < rows; ++r) {
      double sum = 0;
      double squares = 0;
      for (size_t i = 0; i < size; ++i) sum += values[r * size + i];
      mean.push_back(sum / static_cast<double>(size));
      for (size_t i = 0; i < size; ++i) squares += std::pow(values[r * size + i] - mean[r], 2);
      inv_std.push_back(1 / std::sqrt(squares / static_cast<double>(size) + eps));
      for (size_t i = 0; i < size; ++i) {
        y.push_back(gamma.to_doubles()[i] * (values[r * size + i] - mean[r]) * inv_std[r] + beta.to_doubles()[i]);
      }
    }
  }
};

TEST(ReferenceLayerNorm, EqualsTheDefinitionAndItsDifferences) {
  const Shape shape{2, 3, 2, 5};
  const Tensor x = random_tensor({DType::kF64, shape}, 1);
  const Tensor dy = random_tensor({DType::kF64, shape}, 2);
  const Tensor gamma = random_tensor({DType::kF64, {2, 5}}, 3);
  const Tensor beta = random_tensor({DType::kF64, {2, 5}}, 4);
  const Type rows{DType::kF64, {2, 3}};
  const Attributes attributes{{"begin_axis", int64_t{2}}, {"eps", 1e-2}};
  const LayerNorm expected(x, gamma, beta, 6, 1e-2);
  const auto loss = [&](const Tensor& x, const Tensor& gamma, const Tensor& beta) {
    const LayerNorm norm(x, gamma, beta, 6, 1e-2);
    double sum = 0;
    for (size_t i = 0; i < norm.y.size(); ++i) sum += norm.y[i] * dy.values<double>()[i];
    return sum;
  };
  const auto difference = [&](int operand, size_t i) {
    std::array operands{x.clone(), gamma.clone(), beta.clone()};
    operands[static_cast<size_t>(operand)].values<double>()[i] += 1e-5;
    const double above = loss(operands[0], operands[1], operands[2]);
    operands[static_cast<size_t>(operand)].values<double>()[i] -= 2e-5;
    return (above - loss(operands[0], operands[1], operands[2])) / 2e-5;
  };
  for (const StrideOrder layout : kStrideOrders) {
    const RunOptions options{layout, 2};
    const auto result = run_kernel("layer_norm", {x, gamma, beta}, attributes, {x.type(), rows, rows}, options);
    EXPECT_LT(relative_error(result[0], expected.y), 1e-14);
    EXPECT_LT(relative_error(result[1], expected.mean), 1e-14);
    EXPECT_LT(relative_error(result[2], expected.inv_std), 1e-14);
    const auto grads = run_kernel("layer_norm_grad", {dy, x, gamma, result[1], result[2]}, {{"begin_axis", int64_t{2}}},
                                  {x.type(), gamma.type(), gamma.type()}, options);
    for (int operand = 0; operand < 3; ++operand) {
      std::vector<double> differences;
      const Tensor& grad = grads[static_cast<size_t>(operand)];
      for (int64_t i = 0; i < grad.num_elements(); ++i) {
        differences.push_back(difference(operand, static_cast<size_t>(i)));
      }
      EXPECT_THAT(grad.to_doubles(), Pointwise(DoubleNear(1e-8), differences)) << operand;
    }
  }
}

TEST(ReferenceLayerNorm, NoRowsGiveZeroGradientsOfTheScale) {
  const auto grads =
      run_kernel("layer_norm_grad",
                 {Tensor(DType::kF32, {0, 2}), Tensor(DType::kF32, {0, 2}), Tensor::full({DType::kF32, {2}}, 1),
                  Tensor(DType::kF32, {0}), Tensor(DType::kF32, {0})},
                 {{"begin_axis", int64_t{1}}}, {{DType::kF32, {0, 2}}, {DType::kF32, {2}}, {DType::kF32, {2}}});
  EXPECT_THAT(grads[1].to_doubles(), ElementsAre(0, 0));
  EXPECT_THAT(grads[2].to_doubles(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace tessera::kernels
