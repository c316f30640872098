#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// 1, 2, 3, ... in a shape.
Tensor counted(const Shape& shape, DType dtype = DType::kF32) {
  Tensor tensor(DType::kF64, shape);
  double next = 1;
  for (double& value : tensor.values<double>()) value = next++;
  return tensor.cast(dtype);
}

std::vector<double> run(const char* op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                        const Shape& shape, StrideOrder layout) {
  return run_kernel1(op, inputs, attributes, {inputs[0].dtype(), shape}, {.layout = layout}).to_doubles();
}

TEST(ReferenceShapes, ReshapeKeepsTheOrderOfElements) {
  for (const StrideOrder layout : kStrideOrders) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBool, DType::kI8, DType::kU64}) {
      const Tensor x = counted({2, 3, 2}, dtype);
      EXPECT_THAT(run("reshape", {x}, {{"shape", Ints{4, 3}}}, {4, 3}, layout), ElementsAreArray(x.to_doubles()));
    }
    const Tensor x = counted({2, 1, 3});
    EXPECT_THAT(run("squeeze", {x}, {{"axes", Ints{1}}}, {2, 3}, layout), ElementsAreArray(x.to_doubles()));
    EXPECT_THAT(run("expand_dims", {x}, {{"axes", Ints{0}}}, {1, 2, 1, 3}, layout), ElementsAreArray(x.to_doubles()));
  }
}

TEST(ReferenceShapes, TransposeMovesDims) {
  for (const StrideOrder layout : kStrideOrders) {
    EXPECT_THAT(run("transpose", {counted({2, 3, 2})}, {{"perm", Ints{2, 0, 1}}}, {2, 2, 3}, layout),
                ElementsAre(1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12));
  }
}

TEST(ReferenceShapes, ConcatAndSplitAreInverse) {
  for (const StrideOrder layout : kStrideOrders) {
    const Tensor a = counted({2, 1});
    const Tensor b = counted({2, 3});
    const Tensor none = Tensor(DType::kF32, {2, 0});
    const Tensor whole =
        run_kernel1("concat", {a, none, b}, {{"axis", int64_t{1}}}, {DType::kF32, {2, 4}}, {.layout = layout});
    EXPECT_THAT(whole.to_doubles(), ElementsAre(1, 1, 2, 3, 2, 4, 5, 6));
    const auto parts = run_kernel("split", {whole}, {{"axis", int64_t{1}}, {"sizes", Ints{1, 0, 3}}},
                                  {a.type(), none.type(), b.type()}, {.layout = layout});
    EXPECT_THAT(parts[0].to_doubles(), ElementsAreArray(a.to_doubles()));
    EXPECT_THAT(parts[2].to_doubles(), ElementsAreArray(b.to_doubles()));
  }
}

TEST(ReferenceShapes, SlicesWalkBothWays) {
  const Tensor x = counted({3, 4});
  for (const StrideOrder layout : kStrideOrders) {
    const Attributes down{{"begin", Ints{2, 3}}, {"end", Ints{-1, 0}}, {"strides", Ints{-2, -1}}};
    EXPECT_THAT(run("strided_slice", {x}, down, {2, 3}, layout), ElementsAre(12, 11, 10, 4, 3, 2));
    Attributes grad = down;
    grad.set("shape", Ints{3, 4});
    EXPECT_THAT(run("strided_slice_grad", {counted({2, 3})}, grad, {3, 4}, layout),
                ElementsAre(0, 6, 5, 4, 0, 0, 0, 0, 0, 3, 2, 1));
    const Attributes empty{{"begin", Ints{3, 0}}, {"end", Ints{3, 4}}, {"strides", Ints{1, 1}}};
    EXPECT_THAT(run("strided_slice", {x}, empty, {0, 4}, layout), ElementsAre());
  }
}

TEST(ReferenceShapes, PadTileAndBroadcastRepeat) {
  for (const StrideOrder layout : kStrideOrders) {
    EXPECT_THAT(
        run("pad", {counted({2, 2})}, {{"before", Ints{0, 1}}, {"after", Ints{1, 0}}, {"value", 9.0}}, {3, 3}, layout),
        ElementsAre(9, 1, 2, 9, 3, 4, 9, 9, 9));
    EXPECT_THAT(
        run("pad", {Tensor(DType::kF32, {0})}, {{"before", Ints{1}}, {"after", Ints{1}}, {"value", 2.0}}, {2}, layout),
        ElementsAre(2, 2));
    EXPECT_THAT(run("tile", {counted({2, 1})}, {{"multiples", Ints{2, 3}}}, {4, 3}, layout),
                ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
    EXPECT_THAT(run("broadcast_to", {counted({2, 1})}, {{"shape", Ints{2, 2, 2}}}, {2, 2, 2}, layout),
                ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
    EXPECT_THAT(run("broadcast_to", {counted({1, 2})}, {{"shape", Ints{0, 2}}}, {0, 2}, layout), ElementsAre());
  }
}

}  // namespace
}  // namespace tessera::kernels
