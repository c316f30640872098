#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

TEST(ReferenceCreation, ConstantsRoundToTheDtype) {
  for (const StrideOrder layout : kDenseAndReversed) {
    const RunOptions options{.layout = layout};
    EXPECT_THAT(run_kernel1("fill", {}, {{"value", 257.0}}, {DType::kBF16, {2, 1}}, options).to_doubles(),
                ElementsAre(256, 256));
    EXPECT_THAT(run_kernel1("fill", {}, {{"value", -2.0}}, {DType::kU8, {}}, options).to_doubles(), ElementsAre(0));
    EXPECT_THAT(
        run_kernel1("constant", {}, {{"values", Doubles{1, 0, 3, 4}}}, {DType::kI64, {2, 2}}, options).to_doubles(),
        ElementsAre(1, 0, 3, 4));
    const Tensor x = Tensor::of<float>({2}, {5, 6});
    EXPECT_THAT(run_kernel1("zeros_like", {x}, {}, x.type(), options).to_doubles(), ElementsAre(0, 0));
    EXPECT_THAT(run_kernel1("ones_like", {x}, {}, x.type(), options).to_doubles(), ElementsAre(1, 1));
  }
}

TEST(ReferenceCreation, RangeCountsInIntegersWhereItsEndsAre) {
  const auto range = [](AttributeValue start, AttributeValue delta, DType dtype, int64_t n) {
    return run_kernel1("range", {}, {{"start", start}, {"limit", 0.0}, {"delta", delta}}, {dtype, {n}});
  };
  EXPECT_THAT(range(int64_t{5}, int64_t{-2}, DType::kI32, 3).to_doubles(), ElementsAre(5, 3, 1));
  EXPECT_THAT(range(0.5, 0.25, DType::kF32, 3).to_doubles(), ElementsAre(0.5, 0.75, 1));
  const int64_t big = (int64_t{1} << 53) + 1;  // no double
  EXPECT_EQ(range(big, int64_t{2}, DType::kI64, 2).values<int64_t>()[1], big + 2);
  const Tensor many = range(int64_t{3}, int64_t{-2}, DType::kI32, 1000);
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(many.values<int32_t>()[i], 3 - 2 * static_cast<int32_t>(i));
}

Attributes draws(int64_t stream, const Ints& global_shape = {}, const Ints& offset = {}) {
  return {{"seed", int64_t{42}}, {"stream", stream}, {"global_shape", global_shape}, {"offset", offset}};
}

Tensor step(int64_t value) { return Tensor::scalar(value); }

TEST(ReferenceRandom, ElementsAreDrawsOfBaseRandom) {
  Attributes normal = draws(7);
  normal.set("mean", 2.0);
  normal.set("sigma", 3.0);
  for (const StrideOrder layout : kDenseAndReversed) {
    const Tensor y = run_kernel1("random_normal", {step(5)}, normal, {DType::kF64, {2, 3}}, {.layout = layout});
    for (uint64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(y.values<double>()[i], 2 + 3 * random_normal({.seed = 42, .stream = 7, .step = 5}, i));
    }
  }
}

TEST(ReferenceRandom, ASliceDrawsWhatTheWholeDraws) {
  Attributes whole = draws(-7);
  whole.set("low", -1.0);
  whole.set("high", 3.0);
  const auto all = run_kernel1("random_uniform", {step(1)}, whole, {DType::kF32, {4, 5}}).to_doubles();
  for (const double value : all) EXPECT_TRUE(value >= -1 && value <= 3);
  Attributes piece = whole;
  piece.set("global_shape", Ints{4, 5});
  piece.set("offset", Ints{1, 3});
  EXPECT_THAT(run_kernel1("random_uniform", {step(1)}, piece, {DType::kF32, {2, 2}}).to_doubles(),
              ElementsAre(all[8], all[9], all[13], all[14]));
  EXPECT_NE(run_kernel1("random_uniform", {step(2)}, whole, {DType::kF32, {4, 5}}).to_doubles(), all);
}

TEST(ReferenceRandom, ThreadsDrawWhatOneDraws) {
  Attributes normal = draws(3);
  normal.set("mean", 0.0);
  normal.set("sigma", 1.0);
  normal.set("global_shape", Ints{3, 5000, 4});
  normal.set("offset", Ints{1, 0, 1});
  for (const StrideOrder layout : kDenseAndReversed) {
    const Type type{DType::kF32, {2, 5000, 3}};
    const auto one = run_kernel1("random_normal", {step(1)}, normal, type, {.layout = layout}).to_doubles();
    const auto many = run_kernel1("random_normal", {step(1)}, normal, type, {.layout = layout, .threads = 3});
    EXPECT_EQ(many.to_doubles(), one);
    EXPECT_EQ(one[0], static_cast<float>(random_normal({.seed = 42, .stream = 3, .step = 1}, 20001)));
    EXPECT_EQ(one.back(), static_cast<float>(random_normal({.seed = 42, .stream = 3, .step = 1}, 59999)));
  }
}

TEST(ReferenceRandom, TruncatedNormalStaysWithinTwoSigma) {
  Attributes attributes = draws(1);
  attributes.set("sigma", 0.5);
  const auto values = run_kernel1("random_truncated_normal", {step(0)}, attributes, {DType::kF32, {1000}}).to_doubles();
  double sum = 0;
  for (const double value : values) {
    EXPECT_LE(std::abs(value), 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 1000, 0, 0.05);
}

TEST(ReferenceRandom, DropoutKeepsTheMeanAndDependsOnTheGlobalIndexAlone) {
  const Tensor x = Tensor::full({DType::kF32, {4, 250}}, 3);
  Attributes attributes = draws(9);
  attributes.set("keep_prob", 0.75);
  const auto all = run_kernel1("dropout", {x, step(3)}, attributes, x.type()).to_doubles();
  double kept = 0;
  for (const double value : all) {
    EXPECT_TRUE(value == 0 || value == 4) << value;
    kept += value / 4;
  }
  EXPECT_NEAR(kept / 1000, 0.75, 0.05);
  attributes.set("global_shape", Ints{4, 250});
  attributes.set("offset", Ints{2, 0});
  const Tensor lower = Tensor::full({DType::kF32, {2, 250}}, 3);
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(run_kernel1("dropout", {lower, step(3)}, attributes, lower.type(), {.layout = layout}).to_doubles(),
                testing::ElementsAreArray(all.begin() + 500, all.end()));
  }
}

}  // namespace
}  // namespace tessera::kernels
