#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::Pointwise;

const double kLog2 = std::log(2.0);
const double kLog3 = std::log(3.0);

Attributes attributes(bool causal = false, double keep_prob = 1) {
  return {{"scale", 1.0},         {"causal", causal},       {"keep_prob", keep_prob}, {"seed", int64_t{3}},
          {"stream", int64_t{4}}, {"global_shape", Ints{}}, {"offset", Ints{}}};
}

// Two queries and two keys of one feature. The scores are 0 and 0, then 0 and log 2.
struct TwoByTwo {
  Tensor query = Tensor::of<double>({1, 2, 1, 1}, {0, kLog2});
  Tensor key = Tensor::of<double>({1, 2, 1, 1}, {0, 1});
  Tensor value = Tensor::of<double>({1, 2, 1, 2}, {3, 0, 0, 6});
  Type out{DType::kF64, {1, 2, 1, 2}};
  Type lse{DType::kF64, {1, 1, 2}};
};

TEST(ReferenceAttention, MixesValuesByTheSoftmaxOfScores) {
  const TwoByTwo given;
  for (const StrideOrder layout : kDenseAndReversed) {
    const auto results = run_kernel("attention", {given.query, given.key, given.value}, attributes(),
                                    {given.out, given.lse}, {.layout = layout, .threads = 2});
    EXPECT_THAT(results[0].to_doubles(), Pointwise(DoubleNear(1e-15), {1.5, 3.0, 1.0, 4.0}));
    EXPECT_THAT(results[1].to_doubles(), Pointwise(DoubleNear(1e-15), {kLog2, kLog3}));
  }
}

TEST(ReferenceAttention, CausalMasksAndGivenOnesHideKeys) {
  const TwoByTwo given;
  const auto causal =
      run_kernel("attention", {given.query, given.key, given.value}, attributes(true), {given.out, given.lse});
  EXPECT_THAT(causal[0].to_doubles(), Pointwise(DoubleNear(1e-15), {3.0, 0.0, 1.0, 4.0}));
  const Tensor added = Tensor::of<double>({1, 1, 1, 2}, {kLog2, 0});
  const auto shifted =
      run_kernel("attention", {given.query, given.key, given.value, added}, attributes(), {given.out, given.lse});
  EXPECT_THAT(shifted[0].to_doubles(), Pointwise(DoubleNear(1e-15), {2.0, 2.0, 1.5, 3.0}));
  EXPECT_THAT(shifted[1].to_doubles(), Pointwise(DoubleNear(1e-15), {kLog3, 2 * kLog2}));
}

TEST(ReferenceAttention, AQueryThatSeesNoKeyGivesZerosAndPassesNoGradient) {
  const TwoByTwo given;
  const Tensor none = Tensor::zeros({DType::kBool, {1, 1, 1, 1}});
  const auto results =
      run_kernel("attention", {given.query, given.key, given.value, none}, attributes(), {given.out, given.lse});
  EXPECT_THAT(results[0].to_doubles(), Each(0.0));
  EXPECT_THAT(results[1].to_doubles(), Each(std::numeric_limits<double>::infinity()));
  const auto gradients = run_kernel(
      "attention_grad", {Tensor::full(given.out, 1), given.query, given.key, given.value, results[0], results[1], none},
      attributes(), {given.query.type(), given.key.type(), given.value.type()});
  for (const Tensor& gradient : gradients) EXPECT_THAT(gradient.to_doubles(), Each(0.0));
}

TEST(ReferenceAttention, ASliceOfTheWholeSeesAndDrawsAsTheWholeDoes) {
  const Type rows{DType::kF64, {3, 4, 2, 2}};
  const Tensor query = random_tensor(rows, 1);
  const Tensor key = random_tensor(rows, 2);
  const Tensor value = random_tensor(rows, 3);
  const Tensor step = Tensor::scalar<int64_t>(7);
  const auto whole =
      run_kernel("attention", {query, key, value, step}, attributes(true, 0.5), {rows, {DType::kF64, {3, 2, 4}}});
  // Batch row 2, the queries 1 to 3 of head 1.
  const auto piece = [](const Tensor& tensor, int64_t token, int64_t tokens) {
    const TensorView view = tensor.view();
    auto* data = view.as<double>() + 2 * view.strides[0] + token * view.strides[1] + view.strides[2];
    return Tensor::copy_of({data, view.dtype, {1, tokens, 1, 2}, view.strides});
  };
  Attributes local = attributes(true, 0.5);
  local.set("global_shape", Ints{3, 4, 2, 2});
  local.set("offset", Ints{2, 1, 1, 0});
  const auto part = run_kernel("attention", {piece(query, 1, 3), piece(key, 0, 4), piece(value, 0, 4), step}, local,
                               {{DType::kF64, {1, 3, 1, 2}}, {DType::kF64, {1, 1, 3}}});
  EXPECT_TRUE(bit_equal(part[0], piece(whole[0], 1, 3)));
}

}  // namespace
}  // namespace tessera::kernels
