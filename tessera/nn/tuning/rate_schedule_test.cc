// Claims about schedules of learning rates. What is expected is the published formula, written out for the step, or
// figures that PyTorch's scheduler of the same kind gives.
#include "tessera/nn/tuning/rate_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/nn/optimizers/sgd.h"

namespace tessera::nn {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

testing::Matcher<const std::vector<double>&> near(const std::vector<double>& wanted) {
  return Pointwise(DoubleNear(1e-14), wanted);
}

TEST(RateSchedule, ConstantAndLinear) {
  EXPECT_THAT(schedules::constant(0.3).table(3), ElementsAre(0.3, 0.3, 0.3));
  EXPECT_THAT(schedules::linear(0.1, 0.5, 4).table(6), near({0.1, 0.2, 0.3, 0.4, 0.5, 0.5}));
  EXPECT_THAT(schedules::linear(0.4, 0, 2).table(4), near({0.4, 0.2, 0, 0}));
}

TEST(RateSchedule, CosineFallsOverHalfAPeriod) {
  const double half = std::sqrt(0.5);
  EXPECT_THAT(schedules::cosine(0.2, 4, 0.1).table(6),
              near({0.2, 0.15 + 0.05 * half, 0.15, 0.15 - 0.05 * half, 0.1, 0.1}));
}

TEST(RateSchedule, CosineRestartsWithLongerPeriods) {
  EXPECT_THAT(schedules::cosine_restarts({.rate = 1, .num_steps = 2}).table(6), near({1, 0.5, 1, 0.5, 1, 0.5}));
  const double half = std::sqrt(0.5);
  EXPECT_THAT(schedules::cosine_restarts({.rate = 1, .num_steps = 2, .period_factor = 2}).table(8),
              near({1, 0.5, 1, 0.5 + 0.5 * half, 0.5, 0.5 - 0.5 * half, 1, 0.5 + 0.5 * std::cos(std::acos(-1.0) / 8)}));
  // Periods of 1, 2^28 and 2^56 steps, then one that no int64 counts, of which this is the beginning.
  const int64_t begin = 1 + (int64_t{1} << 28) + (int64_t{1} << 56);
  EXPECT_NEAR(schedules::cosine_restarts({.rate = 1, .num_steps = 1, .period_factor = 1 << 28})(begin), 1, 1e-14);
}

TEST(RateSchedule, PolynomialAndExponential) {
  EXPECT_THAT(schedules::polynomial(0.5, 4, 2, 0.1).table(6),
              near({0.5, 0.1 + 0.4 * 9 / 16, 0.1 + 0.4 * 4 / 16, 0.1 + 0.4 / 16, 0.1, 0.1}));
  EXPECT_THAT(schedules::exponential(0.8, 0.5).table(4), near({0.8, 0.4, 0.2, 0.1}));
  EXPECT_THAT(schedules::exponential(0.8, 0.25, 2).table(4), near({0.8, 0.4, 0.2, 0.1}));
  EXPECT_THAT(schedules::exponential(0.8, 0.25, 2, /*is_stair=*/true).table(5), near({0.8, 0.8, 0.2, 0.2, 0.05}));
}

TEST(RateSchedule, MultiStepFallsAtMilestones) {
  EXPECT_THAT(schedules::multi_step(1, {2, 3}, 0.5).table(5), near({1, 1, 0.5, 0.25, 0.25}));
}

TEST(RateSchedule, InverseSquareRootBehindAWarmUpIsTheTransformersSchedule) {
  const auto schedule = schedules::warmup(4, schedules::inverse_square_root(0.3, 4));
  for (int64_t step = 1; step < 20; ++step) {
    const auto t = static_cast<double>(step);
    EXPECT_NEAR(schedule(step), 0.3 * 2 * std::min(1 / std::sqrt(t), t / 8), 1e-14) << step;
  }
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10, anneal_strategy="linear"), with pct_start=0.4.
TEST(RateSchedule, OneCycleIsPyTorchs) {
  schedules::OneCycle options{.max_rate = 1, .num_steps = 10, .rising_part = 0.4, .div_factor = 4};
  options.final_div_factor = 10;
  options.is_linear = true;
  EXPECT_THAT(schedules::one_cycle(options).table(11),
              near({0.25, 0.5, 0.75, 1, 0.8375, 0.675, 0.5125, 0.35, 0.1875, 0.025, 0.025}));
  options.is_linear = false;
  const auto curved = schedules::one_cycle(options);
  EXPECT_NEAR(curved(1), 0.25 + 0.75 * (1 - std::cos(std::acos(-1.0) / 3)) / 2, 1e-14);
  EXPECT_NEAR(curved(6), (1 + 0.025) / 2, 1e-14);
  options.has_three_phases = true;
  options.is_linear = true;
  // Up in 3 steps, down to the first rate in 3, and in 3 to the last one.
  EXPECT_THAT(schedules::one_cycle(options).table(10), near({0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0.175, 0.1, 0.025}));
}

TEST(RateSchedule, WarmUpRisesToWhatFollows) {
  const auto schedule = schedules::warmup(2, schedules::linear(0.4, 0, 4));
  EXPECT_THAT(schedule.table(8), near({0, 0.2, 0.4, 0.3, 0.2, 0.1, 0, 0}));
  EXPECT_THAT(schedules::warmup(2, schedules::constant(0.4), 0.1).table(4), near({0.1, 0.25, 0.4, 0.4}));
}

TEST(RateSchedule, ASequenceCountsFromEachMilestone) {
  const auto schedule = schedules::sequence({schedules::constant(0.1), schedules::linear(1, 0, 2)}, {3});
  EXPECT_THAT(schedule.table(7), near({0.1, 0.1, 0.1, 1, 0.5, 0, 0}));
  EXPECT_EQ(schedule.end(), 5);
}

TEST(RateSchedule, PerEpochHasOneRateForAllStepsOfAnEpoch) {
  const auto schedule = schedules::multi_step(1, {1, 2}, 0.5).per_epoch(3);
  EXPECT_THAT(schedule.table(8), near({1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25}));
  EXPECT_EQ(schedule.end(), 6);
}

TEST(RateSchedule, AnOptimizerTakesTheTableUpToItsEnd) {
  const LearningRate rate = schedules::linear(0.2, 0.1, 2);
  EXPECT_FALSE(rate.is_fixed());
  EXPECT_THAT(rate.values(), near({0.2, 0.15, 0.1, 0.1}));
  const SGD optimizer({.learning_rate = schedules::warmup(1, schedules::constant(0.1))});
  EXPECT_THAT([] { SGD({.learning_rate = schedules::exponential(0.1, 0.9)}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("exponential: the rate changes without end; give the optimizer the rates of so many steps "
                            "as the training has, table(num_steps)")));
}

TEST(RateSchedule, WhatCannotWorkIsRefusedByName) {
  EXPECT_THAT([] { schedules::cosine(-0.1, 10); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cosine: rate must be finite and not negative, got -0.1")));
  EXPECT_THAT([] { schedules::linear(0.1, 0, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("linear: num_steps must be from 1 to 268435456, got 0")));
  EXPECT_THAT(
      [] {
        schedules::multi_step(0.1, {5, 5});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("multi_step: milestones must rise, got 5 after 5")));
  EXPECT_THROW(schedules::multi_step(0.1, {}), InvalidArgument);
  EXPECT_THROW(schedules::polynomial(0.1, 3, 0), InvalidArgument);
  EXPECT_THAT(
      [] { schedules::one_cycle({.max_rate = 1, .num_steps = 3}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("one_cycle: 3 steps are too few: with rising_part 0.3 phase 1")));
  EXPECT_THROW(schedules::one_cycle({.rising_part = 0.5, .has_three_phases = true}), InvalidArgument);
  EXPECT_THAT([] { schedules::sequence({schedules::constant(1)}, {4}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("got 1 schedules and 1 milestones")));
  EXPECT_THAT([] { schedules::constant(1)(-1); }, ThrowsMessage<InvalidArgument>(HasSubstr("steps count from 0")));
  EXPECT_THAT([] { schedules::constant(1).table(0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("constant: the number")));
  // Growth that leaves what a double holds.
  EXPECT_THAT([] { schedules::exponential(1, 10).table(400); },
              ThrowsMessage<InvalidArgument>(HasSubstr("exponential: the rate of step 309 must be finite")));
}

}  // namespace
}  // namespace tessera::nn
