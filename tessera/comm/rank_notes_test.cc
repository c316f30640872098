// What a rank's notes say of its progress and its waits.
#include "tessera/comm/rank_notes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tessera::comm {
namespace {

using testing::SizeIs;

class Numbered : public RankProgress::Pieces {
 public:
  explicit Numbered(std::string name) : name_(std::move(name)) {}
  PieceName piece_name(int number) const override { return {fmt::format("{} {}", name_, number), ""}; }
  std::string line_of_call(std::string_view /*call*/) const override { return name_ + ".py:1"; }

 private:
  std::string name_;
};

TEST(RankProgress, NamesThePieceThatRuns) {
  RankProgress progress;
  EXPECT_EQ(progress.glance().words(), "");
  progress.set_step(3);
  const Numbered pieces("matmul");
  {
    const RankProgress::Run run(&progress, pieces);
    progress.enter_piece(7);
    EXPECT_EQ(progress.glance().words(), "step 3, matmul 7");
    EXPECT_EQ(progress.line_of_call("all_reduce"), "matmul.py:1");
  }
  EXPECT_EQ(progress.glance().words(), "step 3");
  EXPECT_EQ(progress.line_of_call("all_reduce"), "");
  progress.set_step(0);
  EXPECT_EQ(progress.glance().words(), "");
}

TEST(RankProgress, CountsAnotherNumberWheneverItComesFurther) {
  RankProgress progress;
  const Numbered pieces("matmul");
  std::vector<uint64_t> counts = {progress.count()};
  const auto expect_change = [&] {
    EXPECT_GT(progress.count(), counts.back());
    counts.push_back(progress.count());
  };
  for (int run_number = 0; run_number < 3; ++run_number) {
    const RankProgress::Run run(&progress, pieces);
    for (size_t piece = 1; piece < 4; ++piece) {
      progress.enter_piece(piece);
      expect_change();
    }
  }
  {
    const RankProgress::Phase phase(&progress, "the callbacks");
    expect_change();
    EXPECT_EQ(progress.glance().doing(), "the callbacks");
  }
  expect_change();
  EXPECT_EQ(progress.glance().doing(), "");
}

TEST(RankProgress, KnowsInWhichPieceAnExceptionHasEndedTheRun) {
  RankProgress progress;
  const Numbered pieces("gather");
  try {
    const RankProgress::Run run(&progress, pieces);
    progress.enter_piece(2);
    throw std::runtime_error("an index");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(progress.glance().failed_piece.what, "gather 2");
  EXPECT_EQ(progress.glance().doing(), "");
  const RankProgress::Run next(&progress, pieces);
  EXPECT_EQ(progress.glance().failed_piece.what, "");
}

TEST(RankProgress, ARunWithinARunGivesBackItsPlace) {
  RankProgress progress;
  const Numbered outer("outer"), inner("inner");
  const RankProgress::Run run(&progress, outer);
  progress.enter_piece(5);
  {
    const RankProgress::Run within(&progress, inner);
    progress.enter_piece(1);
    EXPECT_EQ(progress.glance().doing(), "inner 1");
  }
  EXPECT_EQ(progress.glance().doing(), "outer 5");
}

TEST(RankProgress, NobodyNeedLookOn) {
  const Numbered pieces("matmul");
  const RankProgress::Run run(nullptr, pieces);
  const RankProgress::Phase phase(nullptr, "the callbacks");
}

TEST(RankProgress, OthersLookWhileItRuns) {
  RankProgress progress;
  std::atomic<bool> ends{false};
  std::thread other([&] {
    while (!ends.load()) progress.glance();
  });
  for (int step = 1; step < 200; ++step) {
    const Numbered pieces("matmul " + std::to_string(step));
    progress.set_step(step);
    const RankProgress::Run run(&progress, pieces);
    for (size_t piece = 0; piece < 50; ++piece) progress.enter_piece(piece);
  }
  ends = true;
  other.join();
}

TEST(WaitTimes, AddUpByCallAndPeer) {
  WaitTimes times;
  for (int i = 0; i < 3; ++i) {
    times.add({.label = "all_reduce \"fc\"", .group = "world", .peer = 2, .first_waiting = 0}, 10);
    times.add({.label = "all_reduce \"fc\"", .group = "world", .peer = 1, .first_waiting = 0}, 4);
    times.add({.label = "barrier", .group = "world", .peer = 2, .first_waiting = 0}, 1);
  }
  const auto taken = times.take();
  ASSERT_THAT(taken, SizeIs(3));
  EXPECT_EQ(taken[0].call, "all_reduce \"fc\" of group \"world\"");
  EXPECT_EQ(taken[0].peer, 2);
  EXPECT_EQ(taken[0].waited_ms, 30);
  EXPECT_EQ(taken[2].waited_ms, 3);
  EXPECT_THAT(times.take(), SizeIs(0));
}

TEST(WaitTimes, KeepTheirRoom) {
  WaitTimes times;
  const std::string long_name(500, 'x');
  for (int i = 0; i < 1000; ++i) {
    times.add({.label = long_name, .group = long_name, .peer = i, .first_waiting = 0}, 1);
  }
  EXPECT_THAT(times.take(), SizeIs(64));
}

}  // namespace
}  // namespace tessera::comm
