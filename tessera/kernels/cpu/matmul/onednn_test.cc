#include <gtest/gtest.h>

#include <set>

#include "tessera/testing/kernels/kernel_testing.h"

namespace tessera::kernels::cpu {
namespace {

// oneDNN's own: a table of the arguments, per primitive.
constexpr int64_t kAllocations = 200;

struct ConvCase {
  int64_t n, ci, h, w, co, kernel;
  Ints strides = {1, 1};
  Ints padding = {0, 0, 0, 0};
  Ints dilation = {1, 1};
  int64_t groups = 1;
};

const std::vector<ConvCase> kConvolutions = {
    {2, 3, 17, 19, 16, 7, {2, 2}, {3, 3, 3, 3}},
    {2, 16, 9, 9, 32, 3, {1, 1}, {1, 1, 1, 1}},
    {1, 64, 7, 5, 48, 1},
    {3, 64, 8, 8, 32, 1, {2, 2}},
    {2, 16, 10, 11, 24, 3, {2, 2}, {0, 1, 1, 2}},
    {2, 8, 12, 12, 8, 3, {1, 1}, {2, 2, 2, 2}, {2, 2}},
    {2, 32, 9, 9, 32, 3, {1, 1}, {1, 1, 1, 1}, {1, 1}, 32},
    {2, 32, 9, 9, 64, 3, {1, 1}, {1, 1, 1, 1}, {1, 1}, 4},
    {1, 5, 6, 7, 3, 3, {3, 2}, {1, 0, 2, 1}, {1, 1}, 1},
    {1, 1, 1, 1, 1, 1},
    // Channels that do not fill a vector, where rows and columns are left out.
    {8, 3, 8, 8, 8, 1, {2, 2}},
    {2, 12, 8, 8, 16, 1, {2, 2}},
    {2, 8, 8, 8, 3, 1, {2, 1}},
};

int64_t out_size(int64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after, int64_t dilation) {
  return (in + before + after - (dilation * (kernel - 1) + 1)) / stride + 1;
}

std::vector<TestCase> convolution_cases(const ConvCase& c, DType dtype, TestStrides layout) {
  const int64_t ho = out_size(c.h, c.kernel, c.strides[0], c.padding[0], c.padding[1], c.dilation[0]);
  const int64_t wo = out_size(c.w, c.kernel, c.strides[1], c.padding[2], c.padding[3], c.dilation[1]);
  const TestOperand x{{dtype, {c.n, c.ci, c.h, c.w}}, layout};
  const TestOperand weight{{dtype, {c.co, c.ci / c.groups, c.kernel, c.kernel}}};
  const TestOperand y{{dtype, {c.n, c.co, ho, wo}}, layout};
  Attributes attributes = {
      {"strides", c.strides}, {"padding", c.padding}, {"dilation", c.dilation}, {"groups", c.groups}};
  TestCase forward{.op = "conv2d", .inputs = {x, weight}, .outputs = {y}, .attributes = attributes};
  TestCase grad_input{.op = "conv2d_grad_input", .inputs = {y, weight}, .outputs = {x}, .attributes = attributes};
  grad_input.attributes.set("input_size", Ints{c.h, c.w});
  TestCase grad_weight{.op = "conv2d_grad_weight", .inputs = {y, x}, .outputs = {weight}, .attributes = attributes};
  grad_weight.attributes.set("kernel_size", Ints{c.kernel, c.kernel});
  std::vector<TestCase> cases = {forward, grad_input, grad_weight};
  for (TestCase& test : cases) {
    test.max_allocations = kAllocations;
    test.rtol = dtype == DType::kF32 ? 1e-5 : 1e-3;
    test.atol = dtype == DType::kF32 ? 1e-4 : 1e-2;
  }
  return cases;
}

TEST(Convolution, ForwardAndGradientsAgreeWithReferenceOnLayoutsAndThreads) {
  int num_threads = 0;
  for (const ConvCase& convolution : kConvolutions) {
    for (const TestStrides layout : {TestStrides::kChannelsLast, TestStrides::kDense, TestStrides::kPadded}) {
      if (layout == TestStrides::kPadded && &convolution != &kConvolutions[1]) continue;
      for (TestCase& test : convolution_cases(convolution, DType::kF32, layout)) {
        test.num_threads = num_threads = num_threads % 3 + 1;
        test.kernel = "onednn." + test.op;
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

TEST(Convolution, HalfTypesComputeInF32WhereTheCpuLacksThem) {
  for (const ConvCase& convolution : kConvolutions) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (TestCase& test : convolution_cases(convolution, dtype, TestStrides::kChannelsLast)) {
        test.kernel = "onednn." + test.op;
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

TEST(ConvolutionCandidates, AgreeWithReferenceInAllDTypesOnLayoutsAndThreads) {
  // On top of the usual ones: single channels; images of few pixels, where some or all but one tap see nothing but
  // padding.
  auto convolutions = kConvolutions;
  convolutions.insert(convolutions.end(),
                      {{3, 1, 6, 5, 1, 3},
                       {2, 8, 4, 4, 1, 1},
                       {2, 1, 4, 4, 8, 1},
                       {5, 32, 1, 1, 48, 3, {1, 1}, {1, 1, 1, 1}},
                       {3, 32, 2, 2, 16, 3, {1, 1}, {1, 1, 1, 1}},
                       {2, 16, 2, 2, 16, 3, {2, 2}, {1, 1, 1, 1}},
                       {4, 64, 2, 3, 32, 1, {2, 2}},
                       {1, 16, 5, 5, 32, 5, {1, 1}, {0, 4, 3, 1}},
                       // Tiles of Winograd's that stand over an edge, without padding, and with uneven padding.
                       {3, 32, 7, 6, 16, 3, {1, 1}, {1, 1, 1, 1}},
                       {2, 16, 9, 8, 48, 3, {1, 1}, {0, 0, 0, 0}},
                       {2, 16, 6, 11, 32, 3, {1, 1}, {0, 2, 3, 0}},
                       {40, 16, 8, 8, 16, 3, {1, 1}, {1, 1, 1, 1}}});
  std::set<std::string> seen;
  int num_threads = 0;
  for (const ConvCase& convolution : convolutions) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const TestStrides layout : {TestStrides::kChannelsLast, TestStrides::kDense}) {
        for (TestCase& test : convolution_cases(convolution, dtype, layout)) {
          test.num_threads = num_threads = num_threads % 3 + 1;
          const auto names = compare_candidates_with_reference(test);
          seen.insert(names.begin(), names.end());
        }
      }
    }
  }
  for (const char* op : {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"}) {
    for (const char* suffix : {"", "/split"}) EXPECT_TRUE(seen.contains(fmt::format("matmul.{}{}", op, suffix))) << op;
    for (const char* suffix : {"", "/shared"}) {
      EXPECT_TRUE(seen.contains(fmt::format("winograd.{}{}", op, suffix))) << op;
    }
  }
}

TEST(ConvolutionCandidates, SumAWeightsGradientOfHalfImagesInF32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    // 2048 ones under each tap: sums in half types would end at 256 (bf16) or lose every other one (f16).
    TestCase test = convolution_cases({32, 16, 8, 8, 16, 1}, dtype, TestStrides::kChannelsLast)[2];
    test.outputs[0].type.dtype = DType::kF32;
    for (TestOperand& input : test.inputs) input.low = input.high = 1;
    test.reference_in_f32 = true;
    test.rtol = test.atol = 0;
    compare_candidates_with_reference(test);
  }
}

TEST(Convolution, DeclinesEmptyTensorsAndF64) {
  for (const TestCase& test : convolution_cases({0, 3, 8, 8, 4, 3}, DType::kF32, TestStrides::kChannelsLast)) {
    EXPECT_EQ(fast_kernel_name(test), "declined");
  }
  for (const TestCase& test : convolution_cases({1, 3, 8, 8, 4, 3}, DType::kF64, TestStrides::kChannelsLast)) {
    EXPECT_EQ(fast_kernel_name(test), "declined");
  }
}

struct MatmulCase {
  int64_t m, k, n;
};

TestCase matmul(const MatmulCase& c, bool transpose_a, bool transpose_b, DType dtype, TestStrides layout,
                const Shape& batch = {}) {
  const auto matrix = [&](int64_t rows, int64_t columns, bool transpose, TestStrides matrix_layout) {
    Shape shape = batch;
    shape.push_back(transpose ? columns : rows);
    shape.push_back(transpose ? rows : columns);
    return TestOperand{{dtype, shape}, matrix_layout};
  };
  TestCase test{.op = batch.ndim() > 0 ? "batch_matmul" : "matmul"};
  test.inputs = {matrix(c.m, c.k, transpose_a, layout), matrix(c.k, c.n, transpose_b, layout)};
  test.outputs = {matrix(c.m, c.n, false, layout)};
  test.attributes = {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
  test.max_allocations = kAllocations;
  test.rtol = dtype == DType::kF32 ? 1e-5 : 1e-3;
  test.atol = dtype == DType::kF32 ? 1e-4 : 1e-2;
  return test;
}

TEST(Matmul, AgreesWithReferenceOnTransposesLayoutsAndThreads) {
  int num_threads = 0;
  for (const MatmulCase& sizes :
       {MatmulCase{1, 1, 1}, {5, 7, 3}, {1, 33, 10}, {32, 1, 9}, {64, 300, 1}, {65, 64, 130}}) {
    for (const int transposes : {0, 1, 2, 3}) {
      for (const TestStrides layout : {TestStrides::kDense, TestStrides::kPadded, TestStrides::kReversed}) {
        for (const Shape& batch : {Shape{}, Shape{3}, Shape{2, 3}}) {
          TestCase test = matmul(sizes, transposes & 1, transposes & 2, DType::kF32, layout, batch);
          test.num_threads = num_threads = num_threads % 3 + 1;
          test.kernel = "onednn." + test.op;
          EXPECT_TRUE(compare_with_reference(test));
        }
      }
    }
  }
}

TEST(MatmulCandidates, AgreeWithReferenceOnTransposesLayoutsDTypesAndThreads) {
  std::set<std::string> seen;
  for (const MatmulCase& sizes : {MatmulCase{5, 7, 3}, {1, 33, 10}, {64, 100, 1}, {33, 40, 50}, {16, 700, 24}}) {
    for (const int transposes : {0, 1, 2, 3}) {
      for (const TestStrides layout : {TestStrides::kDense, TestStrides::kPadded, TestStrides::kReversed}) {
        for (const Shape& batch : {Shape{}, Shape{2, 3}}) {
          for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
            TestCase test = matmul(sizes, transposes & 1, transposes & 2, dtype, layout, batch);
            for (const int num_threads : {1, 2, 3}) {
              test.num_threads = num_threads;
              const auto names = compare_candidates_with_reference(test);
              seen.insert(names.begin(), names.end());
            }
          }
        }
      }
    }
  }
  for (const char* name : {"matmul.matmul/split", "matmul.matmul/split_k", "matmul.batch_matmul/split"}) {
    EXPECT_TRUE(seen.contains(name)) << name;
  }
}

TEST(Matmul, HalfOperandsMayHaveAnF32Result) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const DType out : {dtype, DType::kF32}) {
      for (const int transposes : {0, 1, 2, 3}) {
        TestCase test = matmul({33, 100, 17}, transposes & 1, transposes & 2, dtype, TestStrides::kDense);
        test.outputs[0].type.dtype = out;
        test.reference_in_f32 = true;
        test.kernel = "onednn.matmul";
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

TEST(Matmul, DeclinesEmptyOperands) {
  EXPECT_EQ(fast_kernel_name(matmul({3, 0, 4}, false, false, DType::kF32, TestStrides::kDense)), "declined");
}

}  // namespace
}  // namespace tessera::kernels::cpu
