// Work that is spread over threads is done once, and its errors arrive.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/crc32c.h"
#include "tessera/checkpoint/threads/companion.h"
#include "tessera/checkpoint/threads/copy_views.h"
#include "tessera/checkpoint/threads/crc_sum.h"
#include "tessera/checkpoint/threads/in_threads.h"
#include "tessera/testing/no_threads.h"

namespace tessera::checkpoint {
namespace {

TEST(Threads, EachItemIsTakenOnceByAThreadOfTheirNumber) {
  constexpr size_t kThreads = 3;
  std::vector<std::atomic<int>> taken(1000);
  std::vector<int> by_thread(kThreads);  // each thread its own
  for_each_in_threads(kThreads, taken.size(), [&](const ThreadTurn& turn) {
    ++taken[turn.i];
    ++by_thread[turn.thread];
  });
  for (const auto& count : taken) EXPECT_EQ(count, 1);
  EXPECT_EQ(by_thread[0] + by_thread[1] + by_thread[2], 1000);
}

TEST(Threads, AnErrorEndsTheWork) {
  std::atomic<int> calls = 0;
  EXPECT_THROW(for_each_in_threads(2, 1'000'000,
                                   [&](size_t i) {
                                     ++calls;
                                     if (i == 10) throw InvalidArgument("ten");
                                   }),
               InvalidArgument);
  EXPECT_LT(calls, 1'000'000);
}

TEST(Threads, WhoLeavesOffBecauseOfAnErrorDoesNotHideIt) {
  for (int round = 0; round < 100; ++round) {
    EXPECT_THROW(for_each_in_threads(3, 3,
                                     [](const ThreadTurn& turn) {
                                       if (turn.i == 1) throw InvalidArgument("one");
                                       while (!turn.failed) std::this_thread::yield();
                                       throw IoError("left off");
                                     }),
                 InvalidArgument);
  }
}

TEST(Threads, LittleWorkTakesOneThread) {
  EXPECT_EQ(threads_for(0), 1);
  EXPECT_EQ(threads_for(1 << 20), 1);
  EXPECT_LE(threads_for(int64_t{1} << 40), 8);
}

TEST(Companion, BothPartsAreDoneWhenACallReturns) {
  Companion companion;
  int here = 0;
  int there = 0;
  for (int i = 1; i <= 100; ++i) {
    companion.run([&] { here += i; }, [&] { there += 2 * i; });
    EXPECT_EQ(here, i * (i + 1) / 2);
    EXPECT_EQ(there, i * (i + 1));
  }
}

TEST(Companion, AnErrorOfEitherPartArrivesAndTheNextCallIsSound) {
  Companion companion;
  int done = 0;
  EXPECT_THROW(companion.run([&] { throw InvalidArgument("here"); }, [&] { ++done; }), InvalidArgument);
  EXPECT_THROW(companion.run([&] { ++done; }, [&] { throw IoError("there"); }), IoError);
  EXPECT_THROW(companion.run([] { throw InvalidArgument("here"); }, [] { throw IoError("there"); }), Error);
  companion.run([&] { ++done; }, [] {});
  EXPECT_EQ(done, 3);
}

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

TEST(Threads, WithoutRoomForThemTheCallerDoesAllWork) {
  const NoThreads none;
  int calls = 0;
  for_each_in_threads(4, 100, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, 100);
  Companion companion;
  std::vector<int> order;
  companion.run([&] { order.push_back(1); }, [&] { order.push_back(2); });
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

}  // namespace
}  // namespace tessera::checkpoint
