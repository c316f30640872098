// Ranks that make their initial values: how long the others wait for one of them.
#include "tessera/session/agree/work_apart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::session {
namespace {

constexpr int64_t kDeadlineMs = 3000;

void work_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Rank 1 works in pieces that take so long, and rank 0 waits for it.
void make_values(int num_pieces, int64_t piece_ms) {
  run_ranks(2,
            [&](cluster::Context& context) {
              WorkApart work(context.world(), "making values", context.progress(), context.clock());
              for (int i = 0; context.rank() == 1 && i < num_pieces; ++i) {
                work_ms(piece_ms);
                work.after_piece();
              }
              work.finish();
              context.world().barrier("all have made theirs");
            },
            {.timeout_ms = kDeadlineMs});
}

TEST(WorkApart, ARankThatComesFurtherIsAwaitedBeyondTheDeadline) { make_values(6, kDeadlineMs / 4); }

TEST(WorkApart, TheDeadlineCountsFromTheLatestPiece) {
  EXPECT_THAT([] { make_values(1, 2 * kDeadlineMs); },
              testing::ThrowsMessage<IoError>(testing::AllOf(testing::HasSubstr("all_reduce \"making values\""),
                                                             testing::HasSubstr("rank 0 heard nothing from rank 1"),
                                                             testing::HasSubstr("TESSERA_TIMEOUT_MS"))));
}

TEST(WorkApart, ManyShortPiecesTellOthersThatTheRankComesFurther) {
  run_ranks(1, [](cluster::Context& context) {
    comm::RankProgress progress;
    WorkApart work(context.world(), "making values", &progress, context.clock());
    const uint64_t before = progress.count();
    work.after_piece();
    EXPECT_NE(progress.count(), before);
    EXPECT_EQ(progress.glance().phase, "");
    work.finish();
  });
}

}  // namespace
}  // namespace tessera::session
