// Batch normalisation fused with its neighbours.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/random.h"
#include "tessera/kernels/registry.h"
#include "tessera/testing/kernels/kernel_testing.h"

namespace tessera::kernels::cpu {
namespace {

struct Batch {
  Shape shape;
  std::vector<int64_t> group_rows = {};  // empty: not grouped
};

const std::vector<Batch> kBatches = {
    {{7, 5}},         {{4, 64, 7, 7}},    {{5, 17, 9, 11}, {2, 2, 1}}, {{1, 1, 1, 1}},
    {{6, 300, 3, 3}}, {{16, 16, 32, 32}}, {{4, 8, 5, 5}, {1, 0, 3}},
};

struct Operands {
  TestOperand image, channel, statistic, variance, sum;
  Attributes attributes;
};

Operands operands_of(const Batch& batch, DType dtype) {
  int64_t pixels = 1;
  for (int dim = 2; dim < batch.shape.ndim(); ++dim) pixels *= batch.shape[dim];
  Ints counts;
  for (const int64_t rows : batch.group_rows) counts.push_back(rows * pixels);
  const bool grouped = !counts.empty();
  if (!grouped) counts.push_back(batch.shape[0] * pixels);
  const int64_t c = batch.shape[1];
  const Shape statistic = grouped ? Shape{static_cast<int64_t>(counts.size()), c} : Shape{c};
  return {.image = {{dtype, batch.shape}, TestStrides::kChannelsLast, -2, 3},
          .channel = {{DType::kF32, {c}}},
          .statistic = {{DType::kF32, statistic}, TestStrides::kDense, -0.5, 1.5},
          .variance = {{DType::kF32, statistic}, TestStrides::kDense, 0.1, 3},
          .sum = {{DType::kF32, statistic}, TestStrides::kDense, -50, 50},
          .attributes = {{"counts", counts}, {"grouped", grouped}, {"eps", 1e-5}}};
}

std::vector<TestCase> cases_of(const Operands& o) {
  std::vector<TestCase> cases;
  for (const bool relu : {false, true}) {
    for (const char* residual : {"none", "value", "batch_norm"}) {
      TestCase norm{.op = "fused_batch_norm",
                    .inputs = {o.image, o.statistic, o.variance, o.channel, o.channel},
                    .outputs = {o.image},
                    .attributes = o.attributes};
      if (std::string(residual) != "none") norm.inputs.push_back(o.image);
      if (std::string(residual) == "batch_norm") {
        norm.inputs.insert(norm.inputs.end(), {o.statistic, o.variance, o.channel, o.channel});
      }
      norm.attributes.set("relu", relu);
      norm.attributes.set("residual", std::string(residual));
      norm.attributes.set("residual_eps", 1e-3);
      cases.push_back(norm);
    }
  }
  cases.push_back({.op = "batch_norm_relu_grad_reduce",
                   .inputs = {o.image, o.image, o.statistic, o.variance, o.channel, o.channel},
                   .outputs = {o.statistic, o.statistic},
                   .attributes = o.attributes});
  cases.push_back({.op = "batch_norm_relu_grad_input",
                   .inputs = {o.image, o.image, o.statistic, o.variance, o.channel, o.channel, o.sum, o.sum},
                   .outputs = {o.image},
                   .attributes = o.attributes});
  TestCase masked{.op = "masked_batch_norm_grad_reduce",
                  .inputs = {o.image, o.image, o.statistic, o.variance, o.image},
                  .outputs = {o.image, o.statistic, o.statistic},
                  .attributes = o.attributes};
  cases.push_back(masked);
  masked.inputs.push_back(o.image);
  cases.push_back(masked);
  cases.push_back({.op = "batch_norm_statistics",
                   .inputs = {o.image},
                   .outputs = {o.statistic, o.variance},
                   .attributes = o.attributes});
  return cases;
}

TEST(FusedBatchNorm, AgreesWithReferenceOnGroupsDtypesAndThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Batch& batch : kBatches) {
      const Operands operands = operands_of(batch, dtype);
      const double sums = 2e-6 * static_cast<double>(batch.shape.num_elements() / batch.shape[1]);
      for (TestCase& test : cases_of(operands)) {
        test.rtol = 1e-5;
        test.atol = test.outputs.size() > 1 ? std::max(sums, 1e-5) : 2e-5;
        for (const int num_threads : {1, 3}) {
          test.num_threads = num_threads;
          test.kernel = "cpu." + test.op;
          EXPECT_TRUE(compare_with_reference(test));
        }
      }
    }
  }
}

TEST(FusedBatchNorm, TakesGammaAndBetaOfHalfTypes) {
  Operands operands = operands_of({{4, 24, 5, 5}}, DType::kBF16);
  operands.channel.type.dtype = DType::kBF16;
  for (TestCase& test : cases_of(operands)) {
    test.rtol = 1e-5;
    test.atol = 1e-4;
    test.kernel = "cpu." + test.op;
    EXPECT_TRUE(compare_with_reference(test));
  }
}

TEST(FusedBatchNorm, TakesImagesThatLieOtherwiseByCopies) {
  for (const TestStrides layout : {TestStrides::kDense, TestStrides::kPadded, TestStrides::kReversed}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Operands operands = operands_of({{4, 6, 5, 5}, {3, 1}}, dtype);
      operands.image.layout = layout;
      for (TestCase& test : cases_of(operands)) {
        test.rtol = 1e-5;
        test.atol = 1e-3;
        test.kernel = "cpu." + test.op + ".copied";
        EXPECT_TRUE(compare_with_reference(test));
        // Some of the images only.
        test.inputs[0].layout = TestStrides::kChannelsLast;
        test.kernel.clear();
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

// The larger of the relative errors of mean (plus standard deviation) and variance of `x` f32[n,1].
double error_of_statistics(const Tensor& x, int num_threads) {
  const int64_t n = x.num_elements();
  const auto values = x.values<float>();
  double mean = 0;
  for (const float value : values) mean += value;
  mean /= static_cast<double>(n);
  double variance = 0;
  for (const float value : values) variance += (value - mean) * (value - mean);
  variance /= static_cast<double>(n);

  Tensor made(DType::kF32, {2, 1});
  const Attributes attributes = {{"counts", Ints{n}}, {"grouped", false}};
  const TensorView first(made.values<float>().data(), DType::kF32, {1}, {1});
  const TensorView second(made.values<float>().data() + 1, DType::kF32, {1}, {1});
  const auto kernel = cpu_kernels().find({.op = "batch_norm_statistics",
                                          .inputs = {x.view()},
                                          .outputs = {first, second},
                                          .attributes = attributes,
                                          .num_threads = num_threads});
  Tensor scratch(DType::kF64, {(kernel->scratch_bytes + 64) / 8});
  auto* aligned = scratch.bytes().data();
  while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
  const std::vector<TensorView> inputs = {x.view()};
  const std::vector<TensorView> outputs = {first, second};
  kernel->run({.inputs = inputs,
               .outputs = outputs,
               .attributes = attributes,
               .scratch = {aligned, static_cast<size_t>(kernel->scratch_bytes)},
               .parallel_for = ParallelFor(num_threads)});
  const double mean_error = std::abs(made.values<float>()[0] - mean) / (std::abs(mean) + std::sqrt(variance));
  return std::max(mean_error, std::abs(made.values<float>()[1] - variance) / variance);
}

// x[i] = at(i) + a normal number.
template <typename F>
Tensor noise_around(int64_t n, F at) {
  Tensor x(DType::kF32, {n, 1});
  for (int64_t i = 0; i < n; ++i) {
    x.values<float>()[static_cast<size_t>(i)] =
        static_cast<float>(at(i) + random_normal({.seed = 3}, static_cast<size_t>(i)));
  }
  return x;
}

TEST(BatchNormStatistics, AreThoseOfTwoPassesWhereverTheMeanLies) {
  for (const int num_threads : {1, 3}) {
    for (const double mean : {0.0, 1.0, 1e2, 1e4}) {
      EXPECT_LT(error_of_statistics(noise_around(100000, [&](int64_t) { return mean; }), num_threads), 2e-6) << mean;
    }
    // The first rows are far from the others, or all drift away from them.
    for (const int64_t outliers : {1, 32, 200, 5000}) {
      const auto jump = [&](int64_t i) { return i < outliers ? 1e4 : 0.0; };
      EXPECT_LT(error_of_statistics(noise_around(100000, jump), num_threads), 2e-6) << outliers;
    }
    const auto drift = [](int64_t i) { return static_cast<double>(i); };
    EXPECT_LT(error_of_statistics(noise_around(100000, drift), num_threads), 2e-6);
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu
