#include "tessera/testing/run_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tessera/base/error.h"
#include "tessera/testing/no_threads.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

TEST(RunRanks, GivesEachThreadItsRank) {
  std::atomic<int> seen{0};
  run_ranks(3, [&](cluster::Context& context) {
    EXPECT_EQ(context.size(), 3);
    EXPECT_EQ(context.local_rank(), context.rank());
    EXPECT_EQ(context.local_size(), 3);
    EXPECT_EQ(context.transport(), "threads");
    EXPECT_EQ(context.num_compute_threads(), 1);
    seen += 1 << context.rank();
  });
  EXPECT_EQ(seen, 7);
}

TEST(RunRanks, RethrowsTheFirstErrorWithItsRankAndType) {
  EXPECT_THAT(
      [] {
        run_ranks(3, [](cluster::Context& context) {
          if (context.rank() == 1) throw InvalidArgument("the shape is wrong");
          context.world().barrier("never");
        });
      },
      ThrowsMessage<InvalidArgument>("rank 1: the shape is wrong"));
}

TEST(RunRanks, AbortEndsThePeersWaitsWithItsMessage) {
  std::atomic<int> num_stopped{0};
  EXPECT_THAT(
      [&] {
        run_ranks(4, [&](cluster::Context& context) {
          if (context.rank() == 2) return context.abort("the disk is full");
          EXPECT_THAT(
              [&] { context.world().barrier("never"); },
              ThrowsMessage<comm::PeerFailure>(
                  "stopped in barrier \"never\" #1 of group \"world\" because rank 2 failed: the disk is full"));
          ++num_stopped;
        });
      },
      ThrowsMessage<IoError>("rank 2: the disk is full"));
  EXPECT_EQ(num_stopped, 3);
}

TEST(RunRanks, ARankThatReturnsEarlyIsNamed) {
  EXPECT_THAT(
      [] {
        run_ranks(2, [](cluster::Context& context) {
          if (context.rank() == 0) context.world().barrier("end of epoch");
        });
      },
      ThrowsMessage<IoError>(AllOf(StartsWith("rank 0: barrier \"end of epoch\" #1 of group \"world\""),
                                   HasSubstr("waits for rank 1, which has ended without making this call"))));
}

TEST(RunRanks, RefusesAnEmptyJob) {
  EXPECT_THAT([] { run_ranks(0, [](cluster::Context&) {}); },
              ThrowsMessage<InvalidArgument>("a job needs at least 1 rank, got 0"));
}

TEST(Groups, GetNamesThatAllRanksShareAndNoGroupHas) {
  run_ranks(3, [](cluster::Context& context) {
    context.create_group("pair #2", {2, 1});
    EXPECT_EQ(context.new_group_name("pair"), "pair");
    comm::Communicator* first = context.create_group("pair", {0, 1});
    EXPECT_EQ(first != nullptr, context.rank() < 2);
    // A rank that is in no such group takes the same, and so does one that has ended its group already.
    if (context.rank() == 1) context.destroy_group("pair");
    const auto name = context.new_group_name("pair");
    EXPECT_EQ(name, "pair #3");
    comm::Communicator* second = context.create_group(name, {0, 1});
    if (second != nullptr) second->barrier("in the second");
  });
}

TEST(Groups, AreMadeUsedAndDestroyed) {
  run_ranks(5, [](cluster::Context& context) {
    comm::Communicator* odd = context.create_group("0-4", {4, 0});
    EXPECT_EQ(odd != nullptr, context.rank() == 0 || context.rank() == 4);
    EXPECT_EQ(context.has_group("0-4"), odd != nullptr);
    if (odd != nullptr) {
      EXPECT_EQ(odd->rank(), context.rank() == 4 ? 0 : 1);
      EXPECT_THAT(odd->ranks(), ElementsAre(4, 0));
      EXPECT_EQ(context.world_rank_of("0-4", 0), 4);
      EXPECT_EQ(context.group_rank_of("0-4", 0), 1);
      EXPECT_THAT([&] { context.group_rank_of("0-4", 2); }, ThrowsMessage<InvalidArgument>(HasSubstr("not in group")));
      int value = context.rank() + 1;
      odd->all_reduce(&value, 1, DType::kI32, comm::ReduceOp::kSum, "sum");
      EXPECT_EQ(value, 6);
    } else {
      EXPECT_THAT([&] { context.group("0-4"); }, ThrowsMessage<InvalidArgument>(HasSubstr("may not use it")));
    }
    context.destroy_group("0-4");
    EXPECT_THAT([&] { context.group("0-4"); },
                ThrowsMessage<InvalidArgument>("no group \"0-4\"; the groups are world"));
    // A later group of the same name is another group.
    comm::Communicator* again = context.create_group("0-4", {1, 2, 3});
    if (again != nullptr) again->barrier("again");
  });
}

TEST(Groups, RefuseUnknownAndRepeatedRanks) {
  run_ranks(2, [](cluster::Context& context) {
    EXPECT_THAT(
        [&] {
          context.create_group("g", {0, 2});
        },
        ThrowsMessage<InvalidArgument>("group \"g\": rank 2 does not exist; the world has ranks 0 to 1"));
    EXPECT_THAT(
        [&] {
          context.create_group("g", {1, 1});
        },
        ThrowsMessage<InvalidArgument>("group \"g\" names rank 1 twice"));
    EXPECT_THAT([&] { context.create_group("world", {0}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("exists already")));
    EXPECT_THAT([&] { context.destroy_group("world"); }, ThrowsMessage<InvalidArgument>(HasSubstr("lasts as long")));
    context.world().barrier("still usable");
  });
}

TEST(Groups, OneThatRanksCreateDifferentlyIsRefused) {
  EXPECT_THAT(
      [] {
        run_ranks(3, [](cluster::Context& context) {
          comm::Communicator* pair =
              context.create_group("pair", context.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0});
          if (pair != nullptr) pair->barrier("meet");
        });
      },
      ThrowsMessage<IoError>(HasSubstr("every rank must create the same groups in the same order")));
}

TEST(RunRanks, WithoutRoomForTheirThreadsNoRankBegins) {
  const NoThreads none;
  bool has_begun = false;
  EXPECT_THAT([&] { run_ranks(3, [&](cluster::Context&) { has_begun = true; }); },
              ThrowsMessage<IoError>(HasSubstr("cannot start a thread for rank 0 of 3: ")));
  EXPECT_FALSE(has_begun);
}

}  // namespace
}  // namespace tessera
