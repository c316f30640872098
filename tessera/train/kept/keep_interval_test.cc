#include "tessera/train/kept/keep_interval.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tessera::train {
namespace {

// A training whose steps take `step_ns`, and `copy_ns` more where one is kept, alone on its cores.
struct Training {
  KeepInterval interval;
  int64_t step_ns;
  int64_t copy_ns;
  int64_t step = 0;
  int64_t now_ns = 0;
  int64_t cost_ns = 0;
  std::vector<int64_t> kept = {};

  void make(int64_t num_steps) {
    for (int64_t i = 0; i < num_steps; ++i) {
      now_ns += step_ns;
      if (!interval.is_due(++step)) continue;
      kept.push_back(step);
      now_ns += copy_ns;
      cost_ns += copy_ns;
      if (interval.note_kept(step, now_ns, cost_ns)) interval.agree(interval.proposal());
    }
  }
};

TEST(KeepInterval, keeps_after_as_many_steps_as_were_said) {
  Training training{.interval = KeepInterval(3), .step_ns = 1, .copy_ns = 100};
  training.make(10);
  EXPECT_EQ(training.kept, (std::vector<int64_t>{3, 6, 9}));
  EXPECT_FALSE(training.interval.is_automatic());
}

TEST(KeepInterval, keeps_each_step_where_that_costs_less_than_a_hundredth) {
  Training training{.interval = KeepInterval(0), .step_ns = 1'000'000, .copy_ns = 9'000};
  training.make(100);
  EXPECT_EQ(training.kept.size(), 100);
  EXPECT_EQ(training.interval.interval(), 1);
}

TEST(KeepInterval, costs_a_hundredth_of_the_time_at_most_whatever_a_copy_costs) {
  for (const int64_t copy_ns : {20'000, 100'000, 450'000, 3'000'000}) {
    Training training{.interval = KeepInterval(0), .step_ns = 1'000'000, .copy_ns = copy_ns};
    training.make(5'000);
    const int64_t before = training.cost_ns;
    const int64_t begin = training.now_ns;
    training.make(20'000);
    const double part = static_cast<double>(training.cost_ns - before) / static_cast<double>(training.now_ns - begin);
    EXPECT_LE(part, KeepInterval::kMostPart) << copy_ns;
    EXPECT_GE(part, KeepInterval::kMostPart / 2) << copy_ns;
  }
}

TEST(KeepInterval, measures_anew_while_it_goes_on) {
  Training training{.interval = KeepInterval(0), .step_ns = 1'000'000, .copy_ns = 100'000};
  training.make(1'000);
  EXPECT_EQ(training.interval.interval(), 10);
  training.copy_ns = 200'000;
  training.make(20'000);
  EXPECT_EQ(training.interval.interval(), 20);
  training.step_ns = 100'000'000;
  training.make(20'000);
  EXPECT_EQ(training.interval.interval(), 1);
}

TEST(KeepInterval, goes_by_what_all_ranks_have_agreed_on) {
  KeepInterval interval(0);
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_TRUE(interval.is_due(step));
    EXPECT_EQ(interval.note_kept(step, step * 1000, step), step == 4);
  }
  EXPECT_EQ(interval.proposal(), 1);
  interval.agree(5);
  for (int64_t step = 5; step < 9; ++step) EXPECT_FALSE(interval.is_due(step));
  EXPECT_TRUE(interval.is_due(9));
  EXPECT_TRUE(interval.is_due(11)) << "where data sinks, steps are passed over";
}

TEST(KeepInterval, does_not_go_by_a_copy_that_was_held_up) {
  Training training{.interval = KeepInterval(0), .step_ns = 1'000'000, .copy_ns = 50'000};
  training.make(3);
  training.copy_ns = 6'000'000'000;
  training.make(1);
  EXPECT_EQ(training.interval.interval(), 1);
  training.copy_ns = 50'000;
  training.make(100);
  EXPECT_EQ(training.interval.interval(), 5);
}

TEST(KeepInterval, survives_a_clock_that_stands_still) {
  KeepInterval interval(0);
  for (int64_t step = 1; step <= 4; ++step) interval.note_kept(step, 5, step * 1'000'000);
  EXPECT_GE(interval.proposal(), 1);
  EXPECT_LE(interval.proposal(), std::numeric_limits<int32_t>::max());
}

}  // namespace
}  // namespace tessera::train
