#include "tessera/nn/optimizers/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/error.h"

namespace tessera::nn {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

testing::Matcher<const std::vector<double>&> near(const std::vector<double>& wanted) {
  return Pointwise(testing::DoubleEq(), wanted);
}

TEST(LearningRate, IsFixedOrATable) {
  EXPECT_TRUE(LearningRate(0.1).is_fixed());
  EXPECT_FALSE(LearningRate(std::vector{0.1}).is_fixed());
}

TEST(LearningRate, RefusesNegativeNotFiniteAndEmpty) {
  EXPECT_THROW(LearningRate(-0.1), InvalidArgument);
  EXPECT_THROW(LearningRate{std::numeric_limits<double>::infinity()}, InvalidArgument);
  EXPECT_THROW(LearningRate(std::vector<double>{}), InvalidArgument);
  EXPECT_THAT(
      [] {
        LearningRate(std::vector{0.1, -0.2});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("learning rate of step 1")));
}

TEST(LearningRate, PiecewiseConstantChangesAtMilestones) {
  EXPECT_THAT(piecewise_constant_lr({2, 5}, {0.1, 0.05}), ElementsAre(0.1, 0.1, 0.05, 0.05, 0.05));
  EXPECT_THROW(piecewise_constant_lr({2, 2}, {0.1, 0.05}), InvalidArgument);
  EXPECT_THROW(piecewise_constant_lr({2}, {0.1, 0.05}), InvalidArgument);
}

TEST(LearningRate, ExponentialDecayIsSmoothOrAStair) {
  ExponentialDecay decay{.learning_rate = 0.1, .decay_rate = 0.25, .total_steps = 6, .steps_per_epoch = 2};
  EXPECT_THAT(exponential_decay_lr(decay), near({0.1, 0.1, 0.025, 0.025, 0.00625, 0.00625}));
  decay.decay_epochs = 2;
  EXPECT_THAT(exponential_decay_lr(decay), near({0.1, 0.1, 0.05, 0.05, 0.025, 0.025}));
  decay.is_stair = true;
  EXPECT_THAT(exponential_decay_lr(decay), near({0.1, 0.1, 0.1, 0.1, 0.025, 0.025}));
}

TEST(LearningRate, CosineDecayEndsAtTheMinimum) {
  EXPECT_THAT(cosine_decay_lr({.min_lr = 0.01, .max_lr = 0.11, .total_steps = 4, .decay_epochs = 2}),
              Pointwise(DoubleNear(1e-15), {0.11, 0.06, 0.01, 0.01}));
  EXPECT_THROW(cosine_decay_lr({.min_lr = 0.2, .max_lr = 0.1}), InvalidArgument);
}

TEST(LearningRate, PolynomialDecayStopsOrRestarts) {
  PolynomialDecay decay{.learning_rate = 0.5, .end_learning_rate = 0.1, .total_steps = 5, .decay_epochs = 2};
  EXPECT_THAT(polynomial_decay_lr(decay), near({0.5, 0.3, 0.1, 0.1, 0.1}));
  decay.restart = true;
  EXPECT_THAT(polynomial_decay_lr(decay), near({0.5, 0.3, 0.1, 0.2, 0.1}));
  decay = {.learning_rate = 0.5, .end_learning_rate = 0.1, .total_steps = 2, .decay_epochs = 2, .power = 2};
  EXPECT_THAT(polynomial_decay_lr(decay), near({0.5, 0.2}));
}

TEST(LearningRate, WarmupRisesThenHolds) {
  EXPECT_THAT(warmup_lr({.learning_rate = 0.4, .total_steps = 6, .steps_per_epoch = 2, .warmup_epochs = 2}),
              near({0, 0, 0.2, 0.2, 0.4, 0.4}));
  EXPECT_THAT(with_warmup({0.4, 0.4, 0.2}, 2), near({0.2, 0.4, 0.2}));
  EXPECT_THAT(with_warmup({0.4}, 4), near({0.1}));
  EXPECT_THROW(with_warmup({0.4}, -1), InvalidArgument);
}

TEST(LearningRate, CountsBelowOneAreRefusedByName) {
  EXPECT_THAT([] { warmup_lr({.total_steps = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("total_steps must be at least 1, got 0")));
  EXPECT_THAT([] { exponential_decay_lr({.decay_epochs = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("decay_epochs must be at least 1, got 0")));
}

}  // namespace
}  // namespace tessera::nn
