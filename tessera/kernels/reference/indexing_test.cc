#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

TEST(ReferenceIndexing, OneHotIsOffOutsideTheDepth) {
  const Tensor indices = Tensor::of<int32_t>({4}, {1, -1, 3, 0});
  const Tensor on = Tensor::scalar(5.0F);
  const Tensor off = Tensor::scalar(-1.0F);
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(run_kernel1("one_hot", {indices, on, off}, {{"depth", int64_t{2}}, {"axis", int64_t{-1}}},
                            {DType::kF32, {4, 2}}, {.layout = layout})
                    .to_doubles(),
                ElementsAre(-1, 5, -1, -1, -1, -1, 5, -1));
    EXPECT_THAT(run_kernel1("one_hot", {indices, on, off}, {{"depth", int64_t{2}}, {"axis", int64_t{0}}},
                            {DType::kF32, {2, 4}}, {.layout = layout})
                    .to_doubles(),
                ElementsAre(-1, -1, -1, 5, 5, -1, -1, -1));
  }
}

TEST(ReferenceIndexing, GatherTakesRowsAndZerosOutside) {
  const Tensor table = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(run_kernel1("gather", {table, Tensor::of<int64_t>({3}, {1, 2, -1})}, {{"axis", int64_t{0}}},
                            {DType::kF32, {3, 3}}, {.layout = layout})
                    .to_doubles(),
                ElementsAre(4, 5, 6, 0, 0, 0, 0, 0, 0));
    EXPECT_THAT(run_kernel1("gather", {table, Tensor::of<uint8_t>({2, 2}, {2, 0, 1, 1})}, {{"axis", int64_t{1}}},
                            {DType::kF32, {2, 2, 2}}, {.layout = layout})
                    .to_doubles(),
                ElementsAre(3, 1, 2, 2, 6, 4, 5, 5));
    EXPECT_THAT(run_kernel1("gather", {table, Tensor::scalar(int32_t{1})}, {{"axis", int64_t{0}}}, {DType::kF32, {3}},
                            {.layout = layout})
                    .to_doubles(),
                ElementsAre(4, 5, 6));
  }
}

TEST(ReferenceIndexing, ScatterAddsEqualIndicesUp) {
  const Tensor base = Tensor::of<float>({3, 2}, {1, 1, 1, 1, 1, 1});
  const Tensor updates = Tensor::of<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor indices = Tensor::of<int32_t>({4}, {2, 0, 2, 3});
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(
        run_kernel1("scatter_add", {base, indices, updates}, {{"axis", int64_t{0}}}, base.type(), {.layout = layout})
            .to_doubles(),
        ElementsAre(4, 5, 1, 1, 7, 9));
    EXPECT_THAT(run_kernel1("scatter_add",
                            {Tensor::of<int32_t>({2, 3}, {0, 0, 0, 0, 0, 0}), Tensor::of<int32_t>({2}, {1, 1}),
                             Tensor::of<int32_t>({2, 2}, {1, 2, 3, 4})},
                            {{"axis", int64_t{1}}}, {DType::kI32, {2, 3}}, {.layout = layout})
                    .to_doubles(),
                ElementsAre(0, 3, 0, 0, 7, 0));
  }
}

TEST(ReferenceIndexing, RowsOfOneNumberAddUpWithinAPart) {
  const Tensor rows = Tensor::of<float>({6, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const Tensor ids = Tensor::of<int32_t>({6}, {4, 1, 4, 1, 9, 1});
  for (const StrideOrder layout : kDenseAndReversed) {
    const auto made = run_kernel("add_up_rows", {rows, ids},
                                 {{"bounds", Ints{0, 3, 3, 6}}, {"num_rows", int64_t{9}}, {"clears", true}},
                                 {rows.type(), ids.type()}, {.layout = layout});
    EXPECT_THAT(made[0].to_doubles(), ElementsAre(6, 8, 3, 4, 0, 0, 18, 20, 0, 0, 0, 0));
    EXPECT_THAT(made[1].to_doubles(), ElementsAre(4, 1, -1, 1, -1, -1));
  }
}

TEST(ReferenceIndexing, NumbersAreListedOnceWithinAPart) {
  const Tensor ids = Tensor::of<int64_t>({3, 3}, {4, 1, 4, 1, 9, 1, -1, 1, 4});
  for (const StrideOrder layout : kDenseAndReversed) {
    const auto made = run_kernel("list_rows", {ids}, {{"bounds", Ints{0, 1, 1, 3}}, {"num_rows", int64_t{9}}},
                                 {ids.type(), {DType::kI32, ids.shape()}}, {.layout = layout});
    EXPECT_THAT(made[0].to_doubles(), ElementsAre(4, 1, -1, 1, 4, -1, -1, -1, -1));
    EXPECT_THAT(made[1].to_doubles(), ElementsAre(0, 1, 0, 0, -1, 0, -1, 0, 1));
  }
}

TEST(ReferenceIndexing, RowsAreSpreadToTheirPlacesWithinAPart) {
  const Tensor rows = Tensor::of<float>({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Tensor places = Tensor::of<int32_t>({5}, {1, 1, 0, -1, 2});
  for (const StrideOrder layout : kDenseAndReversed) {
    EXPECT_THAT(run_kernel1("spread_rows", {rows, places}, {{"bounds", Ints{0, 2, 5}}}, rows.type(), {.layout = layout})
                    .to_doubles(),
                ElementsAre(3, 4, 3, 4, 5, 6, 0, 0, 9, 10));
  }
}

}  // namespace
}  // namespace tessera::kernels
