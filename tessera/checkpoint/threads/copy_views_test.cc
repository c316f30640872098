// What several threads copy and sum up is what one would.
#include <gtest/gtest.h>

#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/threads/copy_views.h"
#include "tessera/checkpoint/threads/crc_sum.h"

namespace tessera::checkpoint {
namespace {

TEST(CopyViews, CopiesLargeAndSmallStridedAndConverted) {
  Tensor large(DType::kI32, {3000, 1024});
  const auto values = large.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761U);
  TensorView column = large.view();
  column.shape[1] = 1;
  const Tensor to_large = Tensor::zeros(large.type());
  const Tensor to_column = Tensor::zeros({DType::kI32, {3000, 1}});
  const Tensor to_double = Tensor::zeros({DType::kF64, {3000, 1}});
  const ViewCopy copies[] = {{large.view(), to_large.view()}, {column, to_column.view()}, {column, to_double.view()}};
  copy_views(copies);
  EXPECT_TRUE(bit_equal(to_large, large));
  EXPECT_TRUE(bit_equal(to_column, Tensor::copy_of(column)));
  EXPECT_TRUE(bit_equal(to_double, Tensor::copy_of(column).cast(DType::kF64)));
}

TEST(CrcSum, OfThreadsIsThatOfOne) {
  Tensor large(DType::kI32, {9000, 1024});
  const auto values = large.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761U);
  EXPECT_EQ(crc32c_in_threads(large.bytes()), crc32c(large.bytes()));
  EXPECT_EQ(crc32c_in_threads({}), crc32c({}));
}

}  // namespace
}  // namespace tessera::checkpoint
