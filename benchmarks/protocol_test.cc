// How long a step takes, as the steps of a round show it.
#include "benchmarks/protocol.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::benchmarks {
namespace {

// Steps that take as long as they are told; the last duration holds for all that follow.
class ToldSteps {
 public:
  explicit ToldSteps(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  double run() { return seconds_[std::min(num_run_++, seconds_.size() - 1)]; }
  size_t num_run() const { return num_run_; }

 private:
  std::vector<double> seconds_;
  size_t num_run_ = 0;
};

double seconds_of(ToldSteps& steps) {
  return seconds_of_step_in_round([&] { return steps.run(); });
}

TEST(Round, LastsTwoSecondsWithoutItsFirstStep) {
  ToldSteps steps({10, 0.4});
  EXPECT_DOUBLE_EQ(seconds_of(steps), 0.4);
  EXPECT_EQ(steps.num_run(), 1 + 5);
}

TEST(Round, OfLongStepsCountsOneOfThem) {
  ToldSteps steps({0.1, 3, 9});
  EXPECT_EQ(seconds_of(steps), 3);
  EXPECT_EQ(steps.num_run(), 1 + 1);
}

TEST(Round, GivesTheMeanOfTheStepsThatCount) {
  ToldSteps steps({10, 0.5, 1, 1.5});
  EXPECT_EQ(seconds_of(steps), 1);
  EXPECT_EQ(steps.num_run(), 1 + 3);
}

TEST(Round, LastsAsLongAsItIsTold) {
  ToldSteps steps({10, 0.25});
  EXPECT_DOUBLE_EQ(seconds_of_step_in_round([&] { return steps.run(); }, 0.5), 0.25);
  EXPECT_EQ(steps.num_run(), 1 + 2);
}

}  // namespace
}  // namespace tessera::benchmarks
