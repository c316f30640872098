#include "tessera/executor/comm_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <numeric>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/testing/no_threads.h"

namespace tessera::executor {
namespace {

using testing::ThrowsMessage;

CommLane::Task make_task(std::function<void()> run) {
  return std::make_shared<const std::function<void()>>(std::move(run));
}

TEST(CommLane, RunsTasksInOrderWhicheverThreadHasTimeForThem) {
  CommLane lane(0);
  std::vector<int> order;
  std::vector<CommLane::Task> tasks;
  for (int i = 0; i < 300; ++i) tasks.push_back(make_task([&order, i] { order.push_back(i); }));
  for (size_t i = 0; i < tasks.size(); ++i) {
    const int64_t ticket = lane.start(tasks[i]);
    // Some are waited for at once, others in groups.
    if (i % 3 != 0) {
      lane.wait(ticket);
      EXPECT_EQ(order.size(), i + 1);
    }
  }
  std::vector<int> expected(tasks.size());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(CommLane, ATaskThatIsWaitedForAtOnceNeedsNoWaking) {
  CommLane lane(0);
  std::vector<std::thread::id> ran_on;
  const auto task = make_task([&] { ran_on.push_back(std::this_thread::get_id()); });
  for (int i = 0; i < 10; ++i) lane.wait(lane.start(task, false));
  // One may be met by the lane's thread before that sleeps for the first time.
  EXPECT_EQ(ran_on.size(), 10U);
  EXPECT_GE(std::ranges::count(ran_on, std::this_thread::get_id()), 9);
}

TEST(CommLane, ATaskThatWakesNobodyIsRunByTheThreadAllTheSame) {
  CommLane lane(0);
  std::promise<void> first_done;
  std::promise<void> second_done;
  const auto first = make_task([&] { first_done.set_value(); });
  const auto second = make_task([&] { second_done.set_value(); });
  lane.start(first, false);
  const int64_t ticket = lane.start(second);
  first_done.get_future().wait();
  second_done.get_future().wait();
  lane.wait(ticket);
}

TEST(CommLanes, OneGoesOnWhileTheOtherWaits) {
  CommLanes lanes(0);
  std::promise<void> released;
  const auto waiting = make_task([&] { released.get_future().wait(); });
  const auto releasing = make_task([&] { released.set_value(); });
  const int64_t gradients = lanes[ir::kGradientLane].start(waiting);
  lanes[ir::kAwaitedLane].wait(lanes[ir::kAwaitedLane].start(releasing));
  lanes[ir::kGradientLane].wait(gradients);
}

TEST(CommLane, GoesOnBesideTheThreadThatStartedATask) {
  CommLane lane(0);
  std::promise<void> done;
  const auto task = make_task([&] { done.set_value(); });
  const int64_t ticket = lane.start(task);
  done.get_future().wait();  // nobody has called wait()
  lane.wait(ticket);
}

TEST(CommLane, AnErrorEndsItAndIsToldToEveryWait) {
  CommLane lane(0);
  bool was_run = false;
  const auto failing = make_task([] { throw IoError("the peer is gone"); });
  const auto later = make_task([&] { was_run = true; });
  const int64_t first = lane.start(failing);
  const int64_t second = lane.start(later);
  EXPECT_THAT([&] { lane.wait(first); }, ThrowsMessage<IoError>("the peer is gone"));
  EXPECT_THAT([&] { lane.wait(second); }, ThrowsMessage<IoError>("the peer is gone"));
  EXPECT_FALSE(was_run);
}

TEST(CommLane, DrainedHasEndedAllTasksThoughNobodyWaitsForThem) {
  CommLane lane(0);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) lane.start(make_task([&order, i] { order.push_back(i); }), /*wakes=*/false);
  lane.drain();
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2));
  lane.drain();
}

TEST(CommLane, DrainedAfterAnErrorRunsNothingMore) {
  CommLane lane(0);
  bool was_run = false;
  lane.start(make_task([] { throw IoError("the peer is gone"); }), /*wakes=*/false);
  const int64_t later = lane.start(make_task([&] { was_run = true; }), /*wakes=*/false);
  lane.drain();
  EXPECT_FALSE(was_run);
  EXPECT_THAT([&] { lane.wait(later); }, ThrowsMessage<IoError>("the peer is gone"));
}

TEST(CommLane, OwnsATaskUntilItHasEnded) {
  CommLane lane(0);
  auto task = make_task([] {});
  const std::weak_ptr watched = task;
  const int64_t ticket = lane.start(std::move(task), /*wakes=*/false);
  EXPECT_FALSE(watched.expired());
  lane.wait(ticket);
  EXPECT_TRUE(watched.expired());
}

TEST(CommLanes, DrainedGoOnTogetherWhereATaskOfOneWaitsForAnother) {
  CommLanes lanes(0);
  std::promise<void> released;
  lanes[ir::kAwaitedLane].start(make_task([&] { released.set_value(); }), /*wakes=*/false);
  bool has_ended = false;
  lanes[ir::kGradientLane].start(make_task([&] {
    released.get_future().wait();
    has_ended = true;
  }));
  lanes.drain();
  EXPECT_TRUE(has_ended);
}

TEST(CommLanes, WithoutRoomForTheirThreadsTheyAreRefused) {
  const NoThreads none;
  EXPECT_THAT([] { CommLanes lanes(2); },
              ThrowsMessage<IoError>(testing::HasSubstr("cannot start a thread for the collectives of rank 2: ")));
}

}  // namespace
}  // namespace tessera::executor
