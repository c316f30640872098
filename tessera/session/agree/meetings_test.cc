// Ranks that make their initial values: how long the others wait for one of them.
#include "tessera/session/agree/meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::session {
namespace {

constexpr int64_t kDeadlineMs = 3000;

void work_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Rank 1 works in pieces that take so long, and the others wait for it.
void make_values(int num_pieces, int64_t piece_ms) {
  run_ranks(3,
            [&](cluster::Context& context) {
              Meetings meetings(context.world(), "making values", context.progress(), context.clock());
              for (int i = 0; context.rank() == 1 && i < num_pieces; ++i) {
                work_ms(piece_ms);
                meetings.after_piece();
              }
              meetings.finish();
              context.world().barrier("all have made theirs");
            },
            {.timeout_ms = kDeadlineMs});
}

TEST(Meetings, ARankThatComesFurtherIsAwaitedBeyondTheDeadline) { make_values(6, kDeadlineMs / 4); }

TEST(Meetings, TheDeadlineCountsFromTheLatestPiece) {
  EXPECT_THAT(
      [] { make_values(1, 2 * kDeadlineMs); },
      testing::ThrowsMessage<IoError>(testing::ContainsRegex(
          "rank [02]: all_reduce \"making values\" #1 of group \"world\": rank [02] heard nothing from rank 1")));
}

TEST(Meetings, ManyShortPiecesTellOthersThatTheRankComesFurther) {
  run_ranks(1, [](cluster::Context& context) {
    comm::RankProgress progress;
    Meetings meetings(context.world(), "making values", &progress, context.clock());
    const uint64_t before = progress.count();
    meetings.after_piece();
    EXPECT_NE(progress.count(), before);
    EXPECT_EQ(progress.glance().phase, "");
    meetings.finish();
  });
}

}  // namespace
}  // namespace tessera::session
