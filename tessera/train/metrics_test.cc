#include "tessera/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Three classes: the largest logits are 0, 1, 1, 2.
Tensor logits() { return Tensor::of<float>({4, 3}, {3, 1, 2, 0, 5, 1, 0, 2, 1, 1, 2, 3}); }
Tensor labels() { return Tensor::of<int32_t>({4}, {0, 1, 2, 2}); }

double value_of(Metric& metric) { return metric.value(metric.counts()); }

TEST(Metrics, ARowWithALogitThatIsNoNumberIsAMiss) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor outputs = Tensor::of<float>({4, 3}, {nan, nan, nan, nan, 1, 2, 0, nan, 1, 3, 1, 2});
  const Tensor truths = Tensor::of<int32_t>({4}, {0, 0, 2, 0});
  for (const auto& metric : {accuracy(), top_k_accuracy(2)}) {
    metric->update(outputs, truths, 0, 4);
    EXPECT_DOUBLE_EQ(value_of(*metric), 0.25) << metric->name();
  }
  const auto check = [&](const std::shared_ptr<Metric>& metric, double expected) {
    metric->update(outputs, truths, 0, 4);
    EXPECT_DOUBLE_EQ(value_of(*metric), expected) << metric->name();
  };
  check(recall(3), 1.0 / 3 / 3);
  check(precision(3), 1.0 / 3);
  check(f1(3), 0.5 / 3);
}

TEST(Metrics, ClassesAreScoredOneByOne) {
  const auto check = [](const std::shared_ptr<Metric>& metric, double expected) {
    metric->update(logits(), labels(), 0, 4);
    EXPECT_DOUBLE_EQ(value_of(*metric), expected) << metric->name();
    metric->clear();
    EXPECT_EQ(value_of(*metric), 0) << metric->name();
  };
  check(precision(3), (1.0 + 0.5 + 1.0) / 3);
  check(recall(3), (1.0 + 1.0 + 0.5) / 3);
  check(f1(3), (1.0 + 2.0 / 3 + 2.0 / 3) / 3);
}

TEST(Metrics, CountsOfRanksAddUp) {
  const auto whole = f1(3);
  whole->update(logits(), labels(), 0, 4);
  const auto first = f1(3);
  first->update(Tensor::of<float>({1, 3}, {3, 1, 2}), Tensor::of<int32_t>({1}, {0}), 0, 4);
  const auto rest = f1(3);
  rest->update(Tensor::of<float>({3, 3}, {0, 5, 1, 0, 2, 1, 1, 2, 3}), Tensor::of<int32_t>({3}, {1, 2, 2}), 0, 4);
  auto totals = first->counts();
  for (size_t i = 0; i < totals.size(); ++i) totals[i] += rest->counts()[i];
  EXPECT_EQ(totals, whole->counts());
  EXPECT_EQ(first->value(totals), value_of(*whole));
}

TEST(Metrics, ErrorsAreSummedOverColumnsAndAveragedOverRows) {
  const Tensor given = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor wanted = Tensor::of<float>({2, 2}, {1, 4, 0, 4});
  const auto absolute = make_metric("mae");
  const auto squared = make_metric("mse");
  for (const auto& metric : {absolute, squared}) metric->update(given, wanted, 0, 2);
  EXPECT_DOUBLE_EQ(value_of(*absolute), 2.5);
  EXPECT_DOUBLE_EQ(value_of(*squared), 6.5);
}

TEST(Metrics, WhatCannotBeCountedIsRefused) {
  const auto metric = precision(3);
  EXPECT_THAT(
      [&] {
        metric->update(logits(), Tensor::of<int32_t>({4}, {0, 3, 2, 2}), 0, 4);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("precision: label of row 1 must be in [0, 3), got 3")));
  EXPECT_THROW(metric->update(Tensor::of<float>({1, 2}, {1, 2}), Tensor::of<int32_t>({1}, {0}), 0, 1), InvalidArgument);
  const Tensor yes_or_no = Tensor::of<int32_t>({2}, {0, 1});
  EXPECT_THAT(
      [&] {
        accuracy()->update(Tensor::of<float>({2, 1}, {1, 2}), yes_or_no, 0, 2);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("accuracy: needs a column per class, got logits f32[2,1]")));
  EXPECT_THAT(
      [&] {
        accuracy()->update(Tensor::of<float>({2}, {1, 2}), yes_or_no, 0, 2);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("accuracy: logits must be [n,c], a column per class, got f32[2]")));
  EXPECT_THROW(mean_squared_error()->update(logits(), labels(), 0, 4), InvalidArgument);
  EXPECT_THROW(recall(0), InvalidArgument);
  EXPECT_THROW(make_metric("precision"), InvalidArgument);
}

}  // namespace
}  // namespace tessera::train
