#include "tessera/train/saving/rank_barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/checkpoint/lock/share_outcome.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/comm/job_state.h"
#include "tessera/testing/no_threads.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/saving/checkpoint_job.h"

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

TEST(RankBarrier, AFailureIsThatOfTheRankWhereItHappenedWhoeverEndsFirst) {
  std::latch others_have_ended(2);
  const auto job = [&](cluster::Context& context) {
    train::RankBarrier barrier(context.world());
    try {
      checkpoint::run_together(barrier, "cannot save", [&]() -> std::string {
        if (context.rank() == 1) throw IoError("the disk is full");
        return "";
      });
    } catch (const comm::PeerFailure& failure) {
      EXPECT_EQ(failure.rank(), 1);
      EXPECT_STREQ(failure.what(), "rank 1: cannot save: the disk is full");
      others_have_ended.count_down();
      throw;
    } catch (const IoError&) {
      others_have_ended.wait();
      throw;
    }
  };
  EXPECT_THAT([&] { run_ranks(3, job); }, testing::ThrowsMessage<IoError>("rank 1: the disk is full"));
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

// Rank 0 and, where it has no thread for it, rank 2 work in five turns; rank 1 only takes part in them.
void expect_turns(bool rank_2_has_thread) {
  run_ranks(3, [&](cluster::Context& context) {
    train::RankBarrier barrier(context.world());
    std::optional<NoThreads> none;
    if (context.rank() == 2 && !rank_2_has_thread) none.emplace();
    context.world().barrier("rank 2 has no room for threads");
    constexpr int64_t kTurns = 5;
    int64_t turns = 0;
    std::vector<int64_t> seen;
    const auto turn = [&] {
      ++turns;
      int64_t one = 1;
      context.world().all_reduce(&one, 1, DType::kI64, comm::ReduceOp::kSum, "turn");
      EXPECT_EQ(one, 3);
    };
    barrier.run_in_turns(kTurns, turn, [&](FunctionRef<void()> await_turn) {
      if (context.rank() == 1) return;
      // Rank 2 ends early: the turns go on.
      for (int64_t i = 0; i < (context.rank() == 2 ? 2 : kTurns); ++i) {
        await_turn();
        seen.push_back(turns);
      }
    });
    EXPECT_EQ(turns, kTurns);
    const std::vector<int64_t> all{1, 2, 3, 4, 5};
    const auto wanted = context.rank() == 0 ? 5 : context.rank() == 1 ? 0 : 2;
    EXPECT_EQ(seen, std::vector<int64_t>(all.begin(), all.begin() + wanted));
    context.world().barrier("all have seen it");
  });
}

TEST(RankBarrier, WorkAwaitsTurnsThatAllRanksTakeTogether) { expect_turns(true); }

TEST(RankBarrier, WorkWithoutAThreadAwaitsTurns) { expect_turns(false); }

TEST(RankBarrier, WorkThatAwaitsATurnEndsWhereATurnFails) {
  run_ranks(2, [&](cluster::Context& context) {
    train::RankBarrier barrier(context.world());
    std::string said;
    try {
      barrier.run_in_turns(
          1, [] { throw IoError("a rank was lost"); }, [&](FunctionRef<void()> await_turn) { await_turn(); });
    } catch (const IoError& error) {
      said = error.what();
    }
    EXPECT_EQ(said, "a rank was lost");
  });
}

// Takes longer for one file than ranks wait for each other.
class SlowDisk : public MemoryFileSystem {
 public:
  static constexpr int64_t kDeadlineMs = 3000;
  explicit SlowDisk(std::string slow) : slow_(std::move(slow)) {}
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    if (path == slow_) std::this_thread::sleep_for(std::chrono::milliseconds(3 * kDeadlineMs / 2));
    return MemoryFileSystem::create(path, mode);
  }

 private:
  std::string slow_;
};

// Two ranks save `w`, of which each holds a half, to a disk that is slow for one file.
void expect_saved(train::SaveForm form, const std::string& slow) {
  SlowDisk disk(slow);
  run_ranks(2,
            [&](cluster::Context& context) {
              const mesh::Mesh mesh({{"data", 2}});
              train::CheckpointJob::Value value;
              value.held = {"w", {DType::kF32, {4}}, mesh::Layout{mesh, {{{0}}, {}}}};
              value.region = checkpoint::held_region(value.held, context.rank());
              const auto half = Tensor::full({DType::kF32, {2}}, context.rank());
              value.piece = half.view();
              train::CheckpointJob job;
              job.form = form;
              job.files = &disk;
              job.group = &context.world();
              job.path = "d/x.ckpt";
              job.values = {value};
              job.together = {0, 1};
              EXPECT_EQ(job.run(), "d/x.ckpt");
            },
            {.timeout_ms = SlowDisk::kDeadlineMs});
  EXPECT_EQ(checkpoint::load(disk, "d/x.ckpt").find("w")->read().to_doubles(), (std::vector<double>{0, 0, 1, 1}));
}

TEST(CheckpointJob, F43_OfWholeValuesOutlastsTheOthersDeadline) {
  expect_saved(train::SaveForm::kWhole, "d/x.ckpt.tmp");
}

TEST(CheckpointJob, F43_OfSlicesOutlastsTheOthersDeadline) {
  expect_saved(train::SaveForm::kSlices, "d/x.ckpt.manifest.new");
}

}  // namespace
}  // namespace tessera
