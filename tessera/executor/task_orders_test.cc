#include "tessera/executor/task_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/random.h"

namespace tessera::executor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TaskOrders, ReadersOfOneValueHaveNone) {
  const auto after = orders_of({{{}, {{100, 10}}}, {{{100, 10}}, {{200, 10}}}, {{{105, 2}}, {{300, 10}}}});
  EXPECT_THAT(after[1], ElementsAre(0));
  EXPECT_THAT(after[2], ElementsAre(0));
}

TEST(TaskOrders, MemoryThatIsUsedAgainIsWaitedFor) {
  // 0 writes a, 1 reads a, 2 writes over a, 3 has nothing to do with them.
  const auto after = orders_of({{{}, {{0, 8}}}, {{{0, 8}}, {{64, 8}}}, {{}, {{4, 8}}}, {{}, {{128, 8}}}});
  EXPECT_THAT(after[2], ElementsAre(1));  // and so 0
  EXPECT_THAT(after[3], IsEmpty());
}

TEST(TaskOrders, OfRandomTasksAreThoseOfTheirMemoryAndNoMore) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const RandomStream stream{.seed = seed};
    uint64_t draw = 0;
    const auto range = [&] {
      const auto begin = static_cast<uintptr_t>(random_below(stream, draw++, 60));
      return ByteRange{begin, static_cast<size_t>(random_below(stream, draw++, 6))};
    };
    std::vector<Touched> tasks(30);
    for (auto& task : tasks) task = {{range(), range()}, {range()}};
    const auto after = orders_of(tasks);
    // All orders that follow from the named ones.
    std::vector<std::vector<bool>> follows(tasks.size(), std::vector<bool>(tasks.size()));
    for (size_t i = 0; i < tasks.size(); ++i) {
      for (const int j : after[i]) {
        follows[i][static_cast<size_t>(j)] = true;
        for (size_t k = 0; k < tasks.size(); ++k) follows[i][k] = follows[i][k] || follows[static_cast<size_t>(j)][k];
      }
    }
    const auto meet = [](const ByteRange& a, const ByteRange& b) {
      for (uintptr_t byte = a.begin; byte < a.begin + a.bytes; ++byte) {
        if (byte >= b.begin && byte < b.begin + b.bytes) return true;
      }
      return false;
    };
    for (size_t i = 0; i < tasks.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        bool must = meet(tasks[i].writes[0], tasks[j].writes[0]);
        for (const auto& read : tasks[i].reads) must = must || meet(read, tasks[j].writes[0]);
        for (const auto& read : tasks[j].reads) must = must || meet(read, tasks[i].writes[0]);
        if (must) {
          EXPECT_TRUE(follows[i][j]) << "seed " << seed << ": " << i << " after " << j;
        }
        const bool is_named = std::find(after[i].begin(), after[i].end(), static_cast<int>(j)) != after[i].end();
        EXPECT_TRUE(must || !is_named) << "seed " << seed << ": " << i << " needs not wait for " << j;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::executor
