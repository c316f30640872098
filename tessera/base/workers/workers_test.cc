// Work that is spread over threads is done once, and its errors arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/thread.h"
#include "tessera/base/workers/in_threads.h"
#include "tessera/base/workers/worker.h"
#include "tessera/testing/no_threads.h"

namespace tessera {
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
  constexpr int kItems = 1'000'000'000;  // more than the other thread does until the error is thrown
  EXPECT_THROW(for_each_in_threads(2, kItems,
                                   [&](size_t i) {
                                     ++calls;
                                     if (i == 10) throw InvalidArgument("ten");
                                   }),
               InvalidArgument);
  EXPECT_LT(calls, kItems);
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

TEST(Worker, BothPartsAreDoneWhenACallReturns) {
  Worker worker;
  int here = 0;
  int there = 0;
  for (int i = 1; i <= 100; ++i) {
    worker.run_both([&] { here += i; }, [&] { there += 2 * i; });
    EXPECT_EQ(here, i * (i + 1) / 2);
    EXPECT_EQ(there, i * (i + 1));
  }
}

TEST(Worker, AnErrorOfEitherPartArrivesAndTheNextCallIsSound) {
  Worker worker;
  int done = 0;
  EXPECT_THROW(worker.run_both([&] { throw InvalidArgument("here"); }, [&] { ++done; }), InvalidArgument);
  EXPECT_THROW(worker.run_both([&] { ++done; }, [&] { throw IoError("there"); }), IoError);
  EXPECT_THROW(worker.run_both([] { throw InvalidArgument("here"); }, [] { throw IoError("there"); }), Error);
  worker.run_both([&] { ++done; }, [] {});
  EXPECT_EQ(done, 3);
}

TEST(Worker, DoesOneTaskAfterTheOther) {
  Worker worker;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) worker.start([&order, i] { order.push_back(i); });
  worker.finish();
  ASSERT_EQ(order.size(), 100);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Worker, AnErrorArrivesOnceWhereItIsAskedForOrTheNextTaskBegins) {
  Worker worker;
  worker.start([] { throw IoError("first"); });
  EXPECT_THROW(worker.start([] { FAIL() << "begun"; }), IoError);
  worker.finish();
  worker.start([] { throw IoError("second"); });
  EXPECT_THROW(worker.finish(), IoError);
  worker.finish();
}

TEST(Worker, AnErrorThatNobodyAsksForIsLogged) {
  testing::internal::CaptureStderr();
  {
    Worker worker({.purpose = "saving in the background"});
    worker.start([] { throw IoError("the disk is full"); });
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("saving in the background: the disk is full"));
}

TEST(Worker, ATaskIsGoneWhenItIsDone) {
  Worker worker;
  const auto held = std::make_shared<int>(1);
  worker.start([held] {});
  worker.finish();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Worker, OneThatGivesWayIsWaitedFor) {
  Worker worker({.gives_way = true});
  for (int i = 1; i <= 3; ++i) {
    int done = 0;
    worker.start([&] { done = i; });
    worker.finish();
    EXPECT_EQ(done, i);
  }
}

// Whether this process may raise a thread that waits for idle cores.
bool may_raise() {
  bool may = false;
  std::thread([&] {
    give_way();
    may = how_gives_way() == GivesWay::kOnIdleCores;
  }).join();
  return may;
}

// Looks until the thread no longer gives way like that; how often at most.
constexpr int kLooks = 50'000'000;
int looks_while(GivesWay how) {
  int looks = 0;
  for (; looks < kLooks && how_gives_way() == how; ++looks) std::this_thread::yield();
  return looks;
}

// Whoever waits at once may do so before the thread lowers itself, while it does and after.
TEST(Worker, OneThatIsAwaitedDoesNotGoOnWaitingForIdleCores) {
  if (!may_raise()) GTEST_SKIP() << "this process may not raise the priority of its threads";
  for (int round = 0; round < 300; ++round) {
    Worker worker({.gives_way = true});
    int looks = 0;
    worker.start([&] { looks = looks_while(GivesWay::kOnIdleCores); });
    worker.finish();
    ASSERT_LT(looks, kLooks) << round;
  }
}

// On a host whose cores are always busy nobody waits for the task for long, and it must get on all the same.
TEST(Worker, OneThatNobodyWaitsForGetsOnAfterAWhile) {
  if (!may_raise()) GTEST_SKIP() << "this process may not raise the priority of its threads";
  for (int round = 0; round < 20; ++round) {
    Worker worker({.gives_way = true, .idle_limit_ms = 1});
    std::atomic<int> looks = -1;
    GivesWay after = GivesWay::kNot;
    for (int task = 0; task < 2; ++task) {
      looks = -1;
      worker.start([&] {
        const int found = looks_while(GivesWay::kOnIdleCores);
        after = how_gives_way();
        looks = found;
        looks.notify_all();
      });
      looks.wait(-1);
      ASSERT_LT(looks, kLooks) << round << ", task " << task;
      EXPECT_EQ(after, GivesWay::kByShare) << round << ", task " << task;
    }
  }
}

// The thread stays behind, and so does its task.
TEST(Worker, AChildOfForkHasNothingToWaitFor) {
  Worker worker;
  std::atomic<bool> may_end = false;
  worker.start([&] {
    while (!may_end) std::this_thread::yield();
  });
  const pid_t child = fork();
  if (child == 0) {
    const bool was_working = worker.leave_to_parent();
    worker.finish();
    ::_exit(was_working && !worker.leave_to_parent() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  may_end = true;
  worker.finish();
}

TEST(Threads, WithoutRoomForThemTheCallerDoesAllWork) {
  const NoThreads none;
  int calls = 0;
  for_each_in_threads(4, 100, [&](size_t) { ++calls; });
  EXPECT_EQ(calls, 100);
  Worker worker;
  std::vector<int> order;
  worker.run_both([&] { order.push_back(1); }, [&] { order.push_back(2); });
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

}  // namespace
}  // namespace tessera
