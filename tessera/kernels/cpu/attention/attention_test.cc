#include <gtest/gtest.h>

#include "tessera/testing/kernels/kernel_testing.h"

namespace tessera::kernels::cpu {
namespace {

// oneDNN's own: a table of the arguments, per product.
constexpr int64_t kAllocations = 20000;

struct AttentionCase {
  int64_t batch, queries, keys, heads, depth, value_depth;
  DType dtype = DType::kF32;
  std::optional<Type> mask = std::nullopt;
  bool causal = false;
  double keep_prob = 1;
  TestStrides layout = TestStrides::kDense;
};

const std::vector<AttentionCase> kCases = {
    {2, 64, 64, 4, 64, 64},
    {3, 7, 13, 2, 5, 9},
    {1, 1, 1, 1, 1, 1},
    {2, 1, 33, 3, 16, 16},
    {1, 300, 700, 2, 24, 40},  // several blocks, the last one smaller
    {2, 40, 40, 2, 16, 16, DType::kF32, std::nullopt, true},
    {2, 12, 20, 2, 8, 8, DType::kF32, Type{DType::kBool, {2, 1, 12, 20}}},
    {2, 12, 20, 2, 8, 8, DType::kF32, Type{DType::kF32, {1, 2, 12, 20}}, true},
    {2, 12, 20, 2, 8, 8, DType::kF32, Type{DType::kF32, {2, 1, 1, 1}}},
    {2, 24, 24, 2, 16, 16, DType::kF32, std::nullopt, true, 0.75},
    {2, 24, 24, 2, 16, 16, DType::kF32, Type{DType::kBool, {1, 1, 24, 24}}, false, 0.5, TestStrides::kPadded},
    {2, 24, 24, 3, 16, 16, DType::kF32, std::nullopt, false, 1, TestStrides::kReversed},
    {2, 64, 48, 4, 32, 32, DType::kBF16, Type{DType::kBF16, {2, 1, 64, 48}}},
    {1, 300, 700, 2, 32, 32, DType::kBF16, std::nullopt, true},
    {2, 64, 48, 4, 32, 32, DType::kF16},
};

std::vector<TestCase> cases_of(const AttentionCase& c, int num_threads) {
  const auto operand = [&](const Shape& shape) { return TestOperand{{c.dtype, shape}, c.layout}; };
  const TestOperand query = operand({c.batch, c.queries, c.heads, c.depth});
  const TestOperand key = operand({c.batch, c.keys, c.heads, c.depth});
  const TestOperand value = operand({c.batch, c.keys, c.heads, c.value_depth});
  const TestOperand out = operand({c.batch, c.queries, c.heads, c.value_depth});
  // Above that of any row, so that the weights stay below 1.
  const TestOperand lse{.type = {DType::kF32, {c.batch, c.heads, c.queries}}, .low = 5, .high = 7};
  TestCase forward{.op = "attention", .inputs = {query, key, value}, .outputs = {out, lse}};
  TestCase backward{
      .op = "attention_grad", .inputs = {out, query, key, value, out, lse}, .outputs = {query, key, value}};
  for (TestCase* test : {&forward, &backward}) {
    if (c.mask) test->inputs.push_back({.type = *c.mask, .low = 0, .high = 1.9});
    if (c.keep_prob < 1) test->inputs.push_back({.type = {DType::kI64, {}}, .low = 0, .high = 100});
    test->attributes = {{"scale", 0.1},       {"causal", c.causal},   {"keep_prob", c.keep_prob},
                        {"seed", int64_t{5}}, {"stream", int64_t{6}}, {"global_shape", Ints{}},
                        {"offset", Ints{}}};
    test->num_threads = num_threads;
    test->kernel = "cpu." + test->op;
    test->max_allocations = kAllocations;
    test->rtol = c.dtype == DType::kF32 ? 1e-5 : 2e-2;
    test->atol = c.dtype == DType::kF32 ? 1e-4 : 6e-2;
  }
  return {forward, backward};
}

TEST(Attention, ForwardAndGradientAgreeWithReference) {
  for (const AttentionCase& attention : kCases) {
    for (const int num_threads : {1, 3}) {
      for (const TestCase& test : cases_of(attention, num_threads)) {
        SCOPED_TRACE(::testing::Message() << test.op << " " << test.inputs[1].type.to_string() << " " << num_threads);
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu
