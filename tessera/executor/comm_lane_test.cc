#include "tessera/executor/comm_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/testing/no_threads.h"

namespace tessera::executor {
namespace {

using testing::ThrowsMessage;

TEST(CommLane, RunsTasksInOrderWhicheverThreadHasTimeForThem) {
  CommLane lane(0);
  std::vector<int> order;
  std::vector<std::function<void()>> tasks;
  for (int i = 0; i < 300; ++i) tasks.emplace_back([&order, i] { order.push_back(i); });
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
  const std::function<void()> task = [&] { ran_on.push_back(std::this_thread::get_id()); };
  for (int i = 0; i < 10; ++i) lane.wait(lane.start(task, false));
  EXPECT_EQ(ran_on, std::vector(10, std::this_thread::get_id()));
}

TEST(CommLane, ATaskThatWakesNobodyIsRunByTheThreadAllTheSame) {
  CommLane lane(0);
  std::promise<void> first_done;
  std::promise<void> second_done;
  const std::function<void()> first = [&] { first_done.set_value(); };
  const std::function<void()> second = [&] { second_done.set_value(); };
  lane.start(first, false);
  const int64_t ticket = lane.start(second);
  first_done.get_future().wait();
  second_done.get_future().wait();
  lane.wait(ticket);
}

TEST(CommLanes, OneGoesOnWhileTheOtherWaits) {
  CommLanes lanes(0);
  std::promise<void> released;
  const std::function<void()> waiting = [&] { released.get_future().wait(); };
  const std::function<void()> releasing = [&] { released.set_value(); };
  const int64_t gradients = lanes[ir::kGradientLane].start(waiting);
  lanes[ir::kAwaitedLane].wait(lanes[ir::kAwaitedLane].start(releasing));
  lanes[ir::kGradientLane].wait(gradients);
}

TEST(CommLane, GoesOnBesideTheThreadThatStartedATask) {
  CommLane lane(0);
  std::promise<void> done;
  const std::function<void()> task = [&] { done.set_value(); };
  const int64_t ticket = lane.start(task);
  done.get_future().wait();  // nobody has called wait()
  lane.wait(ticket);
}

TEST(CommLane, AnErrorEndsItAndIsToldToEveryWait) {
  CommLane lane(0);
  bool was_run = false;
  const std::function<void()> failing = [] { throw IoError("the peer is gone"); };
  const std::function<void()> later = [&] { was_run = true; };
  const int64_t first = lane.start(failing);
  const int64_t second = lane.start(later);
  EXPECT_THAT([&] { lane.wait(first); }, ThrowsMessage<IoError>("the peer is gone"));
  EXPECT_THAT([&] { lane.wait(second); }, ThrowsMessage<IoError>("the peer is gone"));
  EXPECT_FALSE(was_run);
}

TEST(CommLanes, WithoutRoomForTheirThreadsTheyAreRefused) {
  const NoThreads none;
  EXPECT_THAT([] { CommLanes lanes(2); },
              ThrowsMessage<IoError>(testing::HasSubstr("cannot start a thread for the collectives of rank 2: ")));
}

}  // namespace
}  // namespace tessera::executor
