#include "tessera/train/rank_barrier.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/testing/no_threads.h"
#include "tessera/testing/run_ranks.h"

namespace tessera {
namespace {

TEST(RankBarrier, ARankWithoutRoomForAThreadWorksAndMeetsTheOthersAllTheSame) {
  std::promise<void> others_wait, is_done;
  run_ranks(2, [&](cluster::Context& context) {
    train::RankBarrier barrier(context.world());
    const auto part = [&]() -> std::string {
      if (context.rank() == 0) {
        others_wait.set_value();
        is_done.get_future().wait();
      } else {
        is_done.set_value();
      }
      return context.rank() == 0 ? "a" : "b";
    };
    std::vector<std::string> parts;
    if (context.rank() == 0) {
      parts = checkpoint::run_together(barrier, "cannot save", part);
    } else {
      others_wait.get_future().wait();
      const NoThreads none;
      parts = checkpoint::run_together(barrier, "cannot save", part);
    }
    EXPECT_EQ(parts, (std::vector<std::string>{"a", "b"}));
  });
}

TEST(RankBarrier, WhatFailsWithoutAThreadIsTheErrorOfItsRank) {
  run_ranks(2, [&](cluster::Context& context) {
    train::RankBarrier barrier(context.world());
    std::optional<NoThreads> none;
    if (context.rank() == 0) none.emplace();
    context.world().barrier("there are no more threads");
    std::string said;
    try {
      checkpoint::run_together(barrier, "cannot save", [&]() -> std::string {
        if (context.rank() == 1) throw IoError("the disk is full");
        return "a";
      });
    } catch (const IoError& error) {
      said = error.what();
    }
    EXPECT_EQ(said, context.rank() == 1 ? "the disk is full" : "rank 1: cannot save: the disk is full");
    context.world().barrier("all have seen it");
  });
}

}  // namespace
}  // namespace tessera
