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
}

TEST(Metrics, NamesMakeThem) {
  EXPECT_EQ(make_metric("top_3_accuracy")->name(), "top_3_accuracy");
  EXPECT_EQ(make_metric("acc")->name(), "accuracy");
  for (const char* name : {"precision", "recall", "f1", "auc", "loss", "mae", "mse"}) {
    EXPECT_EQ(make_metric(name)->name(), name);
  }
  for (const char* name : {"top_0_accuracy", "top_x_accuracy", "top__accuracy", "top_accuracy", "top_-1_accuracy"}) {
    EXPECT_THAT([&] { make_metric(name); },
                ThrowsMessage<InvalidArgument>(HasSubstr("known: accuracy, top_K_accuracy")));
  }
}

TEST(Metrics, ClassesAreAsManyAsTheFirstLogitsHaveColumns) {
  const auto metric = f1();
  metric->update(logits(), labels(), 0, 4);
  const auto known = f1(3);
  known->update(logits(), labels(), 0, 4);
  EXPECT_EQ(metric->counts(), known->counts());
  EXPECT_EQ(value_of(*metric), value_of(*known));
  EXPECT_THROW(metric->update(Tensor::of<float>({1, 2}, {1, 2}), Tensor::of<int32_t>({1}, {0}), 0, 1), InvalidArgument);
  EXPECT_EQ(value_of(*recall()), 0);
}

// The area by its definition: of all pairs of a positive and a negative row.
double area_of(const std::vector<float>& scores, const std::vector<int32_t>& classes) {
  double won = 0;
  double pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (classes[i] != 1 || classes[j] != 0) continue;
      pairs += 1;
      won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return won / pairs;
}

TEST(Metrics, TheAreaIsThatOfAllPairsOnUnevenRanks) {
  // bfloat16 has them all.
  const std::vector<float> scores{-8, 0.5, -0.25, 0, -0.F, 3, 3, 1e30F, -1e-30F, 0.5, 1};
  const std::vector<int32_t> classes{0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0};
  std::vector<double> totals;
  size_t begin = 0;
  for (const size_t rows : {4, 1, 0, 6}) {  // of four ranks
    const auto metric = auc();
    const auto n = static_cast<int64_t>(rows);
    metric->update(Tensor::of(Shape{n, 1}, std::span<const float>(scores).subspan(begin, rows)),
                   Tensor::of(Shape{n}, std::span<const int32_t>(classes).subspan(begin, rows)), 0, n);
    const auto counts = metric->counts();
    totals.resize(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) totals[i] += counts[i];
    begin += rows;
  }
  EXPECT_DOUBLE_EQ(auc()->value(totals), area_of(scores, classes));
}

TEST(Metrics, TheAreaTakesLogitsOfTwoClasses) {
  const auto metric = auc();
  metric->update(Tensor::of<float>({4, 2}, {0, 3, 1, 2, 5, 5, 2, 0}), Tensor::of<int32_t>({4}, {1, 0, 1, 0}), 0, 4);
  EXPECT_DOUBLE_EQ(value_of(*metric), 0.75);
  const auto of_distributions = auc();
  of_distributions->update(Tensor::of<float>({2}, {3, 1}), Tensor::of<float>({2, 2}, {0, 1, 1, 0}), 0, 2);
  EXPECT_DOUBLE_EQ(value_of(*of_distributions), 1);
  // A score that is no number is ranked wrong.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto broken = auc();
  broken->update(Tensor::of<float>({4}, {nan, 1, nan, 0}), Tensor::of<int32_t>({4}, {1, 1, 0, 0}), 0, 4);
  EXPECT_DOUBLE_EQ(value_of(*broken), 0.25);
}

TEST(Metrics, TheAreaRefusesWhatHasNone) {
  const auto metric = auc();
  EXPECT_EQ(value_of(*metric), 0);
  EXPECT_THAT([&] { metric->update(logits(), labels(), 0, 4); },
              ThrowsMessage<InvalidArgument>(HasSubstr("auc: output must be [n], [n,1] or [n,2]")));
  EXPECT_THAT(
      [&] {
        metric->update(Tensor::of<float>({2}, {1, 2}), Tensor::of<int32_t>({2}, {0, 2}), 0, 2);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("auc: label of row 1 must be 0 or 1, got 2")));
  EXPECT_THROW(metric->update(Tensor::of<float>({2}, {1, 2}), Tensor::of<int32_t>({3}, {0, 1, 1}), 0, 2),
               InvalidArgument);
  metric->clear();
  metric->update(Tensor::of<float>({2}, {1, 2}), Tensor::of<int32_t>({2}, {1, 1}), 0, 2);
  EXPECT_THAT([&] { value_of(*metric); },
              ThrowsMessage<InvalidArgument>(HasSubstr("auc: needs rows of both classes, all 2 have label 1")));
}

}  // namespace
}  // namespace tessera::train
