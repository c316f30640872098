// Tokens, row numbers and labels that are out of range: every rank stops, nothing is updated, and the message says
// where in the data the bad one lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/cross_entropy.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using executor::InvalidIndex;
using ir::Value;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr int64_t kBatchRows = 8;  // of a batch
constexpr int64_t kTokens = 4;
constexpr int64_t kVocabulary = 7;
constexpr int64_t kClasses = 3;

// Classifies rows of tokens [n,4], of which it does not read the first.
struct Classifier : nn::Cell {
  nn::Embedding& embedding = child<nn::Embedding>("embedding", kVocabulary, 2);
  nn::Dense& head = child<nn::Dense>("head", (kTokens - 1) * 2, kClasses);
  int64_t added = 0;  // to each token
  using Cell::construct;
  Value construct(Value tokens) override {
    const int64_t n = tokens.shape()[0];
    Value read = ops::slice(tokens, {0, 1}, {n, kTokens});
    if (added != 0) read = read + static_cast<double>(added);
    return head(ops::reshape(embedding(read), {n, -1}));
  }
};

// Good tokens and labels, but for one.
struct Bad {
  int64_t token_row = -1;
  int64_t token_at = 0;
  int64_t token = 0;
  int64_t label_row = -1;
  int64_t label = 0;
};

data::Dataset rows(DType dtype, const Bad& bad) {
  const auto read = [=](int64_t row, std::span<const TensorView> to) {
    const auto set = [&](const TensorView& view, int64_t i, int64_t value) {
      if (view.dtype == DType::kI32) view.as<int32_t>()[i] = static_cast<int32_t>(value);
      if (view.dtype == DType::kI64) view.as<int64_t>()[i] = value;
    };
    for (int64_t i = 0; i < kTokens; ++i) set(to[0], i, i == 0 ? -1 : (row + i) % kVocabulary);
    set(to[1], 0, row == bad.label_row ? bad.label : row % kClasses);
    if (row == bad.token_row) set(to[0], bad.token_at, bad.token);
  };
  return data::generator({{"tokens", {dtype, {kTokens}}}, {"label", {dtype, {}}}}, 4 * kBatchRows, read)
      .batch(kBatchRows);
}

struct Training {
  explicit Training(cluster::Context& context, ModelOptions options = {}) {
    options.metrics = {accuracy()};
    model = std::make_unique<Model>(context, network, &loss, &optimizer, options);
  }
  std::vector<double> values() {
    std::vector<double> all;
    for (const auto& name : model->names()) {
      for (const double v : model->value(name).to_doubles()) all.push_back(v);
    }
    return all;
  }
  Classifier network;
  nn::SoftmaxCrossEntropyWithLogits loss{{.sparse = true, .reduction = "mean"}};
  nn::Momentum optimizer{{.learning_rate = 0.1, .momentum = 0.9}};
  std::unique_ptr<Model> model;
};

class BadIndex : public testing::TestWithParam<std::tuple<bool, DType>> {
 protected:
  static ModelOptions options() { return {.session = {.reference_kernels = std::get<0>(GetParam())}}; }
  static DType dtype() { return std::get<1>(GetParam()); }
};

TEST_P(BadIndex, NamesBatchColumnRowValueAndRangeOfAToken) {
  const auto context = cluster::single_context(1);
  Training training(*context, options());
  EXPECT_THAT([&] { training.model->train(1, rows(dtype(), {.token_row = 21, .token_at = 2, .token = 7})); },
              ThrowsMessage<InvalidIndex>(
                  StartsWith("epoch 1, batch 3: column \"tokens\": row 5 holds 7 at [5, 2]; an index of gather "
                             "\"embedding\" must be from 0 to 6; the parameters are those before the step")));
  // Two steps were made before.
  Training other(*context, options());
  other.model->train(1, rows(dtype(), {}).take(2));
  EXPECT_EQ(training.values(), other.values());
  EXPECT_EQ(training.model->step(), 2);
}

TEST_P(BadIndex, NamesALabel) {
  const auto context = cluster::single_context(1);
  for (const int64_t label : {kClasses, int64_t{-1}}) {
    Training training(*context, options());
    const auto before = training.values();
    EXPECT_THAT([&] { training.model->train(1, rows(dtype(), {.label_row = 6, .label = label})); },
                ThrowsMessage<InvalidIndex>(HasSubstr(fmt::format(
                    "batch 1: column \"label\": row 6 holds {} at [6]; an index of softmax_cross_entropy ", label))));
    EXPECT_EQ(training.values(), before);
  }
}

TEST_P(BadIndex, StopsAnEvaluationAndAPrediction) {
  const auto context = cluster::single_context(1);
  Training training(*context, options());
  EXPECT_THAT([&] { training.model->eval(rows(dtype(), {.token_row = 9, .token_at = 3, .token = -2})); },
              ThrowsMessage<InvalidIndex>(HasSubstr("eval: batch 2: column \"tokens\": row 1 holds -2 at [1, 3]")));
  const Tensor tokens = Tensor::full({dtype(), {2, kTokens}}, 9);
  EXPECT_THAT([&] { training.model->predict({tokens}); },
              ThrowsMessage<InvalidIndex>(HasSubstr("input \"input0\": row 0 holds 9 at [0, 1]")));
}

TEST_P(BadIndex, ThatTheNetworkComputesIsNamedWithItsOperator) {
  const auto context = cluster::single_context(1);
  Training training(*context, options());
  training.network.added = 1;
  EXPECT_THAT(
      [&] { training.model->train(1, rows(dtype(), {})); },
      ThrowsMessage<InvalidIndex>(HasSubstr("batch 1: gather \"embedding\": an index is 7; it must be from 0 to 6")));
}

TEST_P(BadIndex, WhereNothingReadsItIsNone) {
  const auto context = cluster::single_context(1);
  Training training(*context, options());
  training.model->train(1, rows(dtype(), {.token_row = 3, .token_at = 0, .token = 1000}));
  EXPECT_EQ(training.model->step(), 4);
}

TEST_P(BadIndex, NamesALabelOfALossThatLeavesSomeOut) {
  for (const auto& weight : {std::vector<double>{}, std::vector<double>(kClasses, 1.0)}) {
    const auto context = cluster::single_context(1);
    Classifier network;
    nn::CrossEntropy loss({.weight = weight, .ignore_index = 9});
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(*context, network, &loss, &optimizer, options());
    model.train(1, rows(dtype(), {.label_row = 6, .label = 9}));
    EXPECT_THAT(
        [&] { model.train(2, rows(dtype(), {.label_row = 13, .label = kClasses})); },
        ThrowsMessage<InvalidIndex>(AllOf(HasSubstr("batch 2: column \"label\": row 5 holds 3 at [5]; an index of "),
                                          HasSubstr("must be from 0 to 2"))));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, BadIndex,
                         testing::Combine(testing::Bool(), testing::Values(DType::kI32, DType::kI64)));

TEST(BadIndex, StopsAStepThatMayBeSkipped) {
  const auto context = cluster::single_context(1);
  Training training(*context, {.loss_scale = nn::dynamic_loss_scale()});
  const auto before = training.values();
  EXPECT_THAT([&] { training.model->train(1, rows(DType::kI32, {.token_row = 2, .token_at = 1, .token = 8})); },
              ThrowsMessage<InvalidIndex>(HasSubstr("row 2 holds 8 at [2, 1]")));
  EXPECT_EQ(training.values(), before);
}

// On ranks: the error of each, and whether their values are those of before.
struct Mode {
  const char* name;
  ModelOptions options;
  bool splits_vocabulary = false;
};

class BadIndexOnRanks : public testing::TestWithParam<Mode> {};

TEST_P(BadIndexOnRanks, StopsAllOfThemAndNamesTheRank) {
  const Mode& mode = GetParam();
  std::vector<std::string> errors(3);
  run_ranks(3, [&](cluster::Context& context) {
    Training training(context, mode.options);
    if (mode.splits_vocabulary) training.network.embedding.shard("gather", {{3, 1}, {1, 1}});
    const bool is_hybrid = mode.options.parallel_mode == ParallelMode::kHybrid;
    // In hybrid parallel each rank has its own rows.
    const Bad bad{.token_row = 15, .token_at = 2, .token = 7};
    const bool has_it = !is_hybrid || context.rank() == 2;
    training.model->train(1, rows(DType::kI32, {}).take(1));
    const auto before = training.values();
    try {
      training.model->train(1, rows(DType::kI32, has_it ? bad : Bad{}).take(2));
    } catch (const InvalidIndex& error) {
      errors[static_cast<size_t>(context.rank())] = error.what();
    }
    EXPECT_EQ(training.model->step(), 2);
    // They can train again together, from the first batch on.
    training.model->train(1, rows(DType::kI32, {}).take(2));
    EXPECT_EQ(training.model->step(), 4);
    EXPECT_NE(training.values(), before);
  });
  EXPECT_THAT(errors, Each(AllOf(StartsWith("epoch 1, batch 2: rank "),
                                 HasSubstr("column \"tokens\": row 7 holds 7 at [7, 2]; an index of gather "
                                           "\"embedding\" must be from 0 to 6"))));
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(errors[0], errors[2]);
}

// What each of three ranks hears of an evaluation whose second batch has a bad index in this row: in hybrid parallel in
// the batch of that rank. Before and afterwards they evaluate together.
std::vector<std::string> heard_of_evaluation(const Mode& mode, int64_t row, int rank) {
  std::vector<std::string> errors(3);
  run_ranks(3,
            [&](cluster::Context& context) {
              Training training(context, mode.options);
              if (mode.splits_vocabulary) training.network.embedding.shard("gather", {{3, 1}, {1, 1}});
              const bool has_it = mode.options.parallel_mode != ParallelMode::kHybrid || context.rank() == rank;
              const Bad bad{.token_row = kBatchRows + row, .token_at = 2, .token = 7};
              const auto good = training.model->eval(rows(DType::kI32, {}));
              try {
                training.model->eval(rows(DType::kI32, has_it ? bad : Bad{}));
              } catch (const InvalidIndex& error) {
                errors[static_cast<size_t>(context.rank())] = error.what();
              }
              EXPECT_EQ(training.model->eval(rows(DType::kI32, {})), good);
            },
            {.timeout_ms = 600000});
  return errors;
}

TEST_P(BadIndexOnRanks, StopsAnEvaluationOfAllAndNamesTheRank) {
  for (const int rank : {0, 2}) {
    const int64_t row = rank == 0 ? 0 : kBatchRows - 1;
    const auto errors = heard_of_evaluation(GetParam(), row, rank);
    // Else a plan says which ranks read the row, and several may.
    const bool is_read_by_one = GetParam().options.parallel_mode != ParallelMode::kSemiAuto;
    const auto named = is_read_by_one ? fmt::format("rank {}: ", rank) : std::string("rank ");
    EXPECT_THAT(errors,
                Each(AllOf(StartsWith("eval: "), HasSubstr("batch 2: "), HasSubstr(named),
                           HasSubstr(fmt::format("column \"tokens\": row {} holds 7 at [{}, 2]; an index of gather "
                                                 "\"embedding\" must be from 0 to 6",
                                                 row, row)))));
    EXPECT_THAT(errors, Each(errors[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, BadIndexOnRanks,
                         testing::Values(Mode{"data_parallel", {.parallel_mode = ParallelMode::kDataParallel}},
                                         Mode{"guarded",
                                              {.parallel_mode = ParallelMode::kDataParallel,
                                               .loss_scale = nn::dynamic_loss_scale()}},
                                         Mode{"hybrid", {.parallel_mode = ParallelMode::kHybrid}},
                                         Mode{"semi_auto", {.parallel_mode = ParallelMode::kSemiAuto}},
                                         Mode{"split_vocabulary", {.parallel_mode = ParallelMode::kSemiAuto}, true}),
                         [](const auto& info) { return info.param.name; });

// Two stages of two ranks each, which split the rows of a micro-batch.
ModelOptions pipelined() {
  return {.parallel_mode = ParallelMode::kPipeline,
          .pipeline = {.stages = 2, .micro_batches = 2, .schedule = "1f1b", .profile = compiler::example_profile()}};
}

// The words of each of its four ranks.
std::vector<std::string> errors_in_a_pipeline(const std::function<void(Training&)>& f) {
  std::vector<std::string> errors(4);
  run_ranks(4, [&](cluster::Context& context) {
    Training training(context, pipelined());
    training.network.embedding.set_stage(0);
    training.network.head.set_stage(1);
    training.model->train(1, rows(DType::kI32, {}).take(1));
    const auto before = training.values();
    try {
      f(training);
    } catch (const InvalidIndex& error) {
      errors[static_cast<size_t>(context.rank())] = error.what();
    }
    EXPECT_EQ(training.values(), before);
    // They go on as if it had never come.
    training.model->train(1, rows(DType::kI32, {}).take(1));
    Training other(context, pipelined());
    other.network.embedding.set_stage(0);
    other.network.head.set_stage(1);
    other.model->train(2, rows(DType::kI32, {}).take(1));
    EXPECT_EQ(training.values(), other.values());
  });
  return errors;
}

TEST(BadIndex, InAPipelineStopsAllStagesAndIsNamedByItsRow) {
  const auto train = [](const Bad& bad) {
    return errors_in_a_pipeline([&](Training& training) { training.model->train(1, rows(DType::kI32, bad)); });
  };
  EXPECT_THAT(
      train({.token_row = 6, .token_at = 2, .token = 7}),
      Each(StartsWith("epoch 1, batch 1: rank 1: column \"tokens\": row 6 holds 7 at [6, 2]; an index of gather "
                      "\"embedding\" must be from 0 to 6; the parameters are those before the step")));
  EXPECT_THAT(train({.label_row = 4, .label = -1}),
              Each(HasSubstr("batch 1: rank 2: column \"label\": row 4 holds -1 at [4]; an index of ")));
}

TEST(BadIndex, InAPipelineStopsAnEvaluationAndAPrediction) {
  EXPECT_THAT(errors_in_a_pipeline(
                  [](Training& training) { training.model->eval(rows(DType::kI32, {.label_row = 5, .label = 4})); }),
              Each(HasSubstr("eval: batch 1: rank 3: column \"label\": row 5 holds 4 at [5]")));
  EXPECT_THAT(errors_in_a_pipeline([](Training& training) {
                training.model->predict({Tensor::full({DType::kI32, {2, kTokens}}, 9)});
              }),
              Each(HasSubstr("rank 0: input \"input0\": row 0 holds 9 at [0, 1]")));
}

TEST(BadIndex, OfARankStopsTheOthersInAnEvaluationToo) {
  std::vector<std::string> errors(2);
  run_ranks(2,
            [&](cluster::Context& context) {
              Training training(context, {.parallel_mode = ParallelMode::kDataParallel});
              try {
                training.model->eval(rows(DType::kI32, {.label_row = 5, .label = 4}));
              } catch (const InvalidIndex& error) {
                errors[static_cast<size_t>(context.rank())] = error.what();
              }
            },
            {.timeout_ms = 600000});
  EXPECT_THAT(errors, Each(StartsWith("eval: rank 1: batch 1: column \"label\": row 5 holds 4 at [5]")));
}

// Adds up the rows of all ranks in each batch.
struct CountsTogether : Metric {
  explicit CountsTogether(cluster::Context& of) : Metric("rows"), context(of) {}
  bool is_global() const override { return true; }
  void update(const Tensor&, const Tensor& label, double, int64_t) override {
    int64_t rows = label.shape()[0];
    context.world().all_reduce(&rows, 1, DType::kI64, comm::ReduceOp::kSum, "rows");
    count_ += static_cast<double>(rows);
  }
  cluster::Context& context;
};

TEST(BadIndex, OfARankStopsTheOthersWhereAMetricMeetsThemInEachBatch) {
  std::vector<std::string> errors(2);
  run_ranks(2,
            [&](cluster::Context& context) {
              Classifier network;
              nn::SoftmaxCrossEntropyWithLogits loss{{.sparse = true, .reduction = "mean"}};
              Model model(context, network, &loss, nullptr,
                          {.parallel_mode = ParallelMode::kDataParallel,
                           .metrics = {accuracy(), std::make_shared<CountsTogether>(context)}});
              try {
                model.eval(rows(DType::kI32, {.label_row = 5, .label = 4}));
              } catch (const InvalidIndex& error) {
                errors[static_cast<size_t>(context.rank())] = error.what();
              }
            },
            {.timeout_ms = 600000});
  EXPECT_THAT(errors, Each(StartsWith("eval: rank 1: batch 1: column \"label\": row 5 holds 4 at [5]")));
}

// Without a loss only the metric looks at the labels, each rank's at its own.
TEST(BadLabel, ThatAMetricOfOneRankRefusesStopsTheOthersWithItsWords) {
  for (const int64_t row : {int64_t{5}, kBatchRows + 1}) {
    std::vector<std::string> errors(2);
    run_ranks(2,
              [&](cluster::Context& context) {
                Classifier network;
                Model model(context, network, nullptr, nullptr,
                            {.parallel_mode = ParallelMode::kDataParallel, .metrics = {f1(kClasses), accuracy()}});
                const auto good = model.eval(rows(DType::kI32, {}));
                try {
                  model.eval(rows(DType::kI32, {.label_row = row, .label = kClasses}));
                } catch (const InvalidArgument& error) {
                  errors[static_cast<size_t>(context.rank())] = error.what();
                }
                EXPECT_EQ(model.eval(rows(DType::kI32, {})), good);
              },
              {.timeout_ms = 600000});
    EXPECT_THAT(errors, Each(AllOf(StartsWith(row == 5 ? "eval: rank 1: batch 1: f1: " : "eval: rank 0: batch 2: f1: "),
                                   HasSubstr("label of row 1 must be in [0, 3), got 3"))));
  }
}

// The ranks would meet again only where the results are put together.
TEST(BadIndex, OfARankStopsTheOthersInAPredictionThatTheyShare) {
  std::vector<std::string> errors(2);
  run_ranks(2,
            [&](cluster::Context& context) {
              Training training(context, {.parallel_mode = ParallelMode::kSemiAuto});
              training.network.embedding.shard("gather", {{1, 1}, {2, 1}});
              training.model->train(1, rows(DType::kI32, {}).take(1));
              Tensor tokens = Tensor::full({DType::kI32, {4, kTokens}}, 1);
              const auto good = training.model->predict({tokens}).to_doubles();
              Tensor bad = Tensor::copy_of(tokens.view());
              bad.values<int32_t>()[4 * kTokens - 1] = 9;
              try {
                training.model->predict({bad});
              } catch (const InvalidIndex& error) {
                errors[static_cast<size_t>(context.rank())] = error.what();
              }
              EXPECT_EQ(training.model->predict({tokens}).to_doubles(), good);
            },
            {.timeout_ms = 600000});
  EXPECT_THAT(errors,
              Each(AllOf(StartsWith("rank "), HasSubstr("gather \"embedding\""), HasSubstr("must be from 0 to 6"))));
}

TEST(BadIndex, OfClassesThatAreSplitIsNamed) {
  std::vector<std::string> errors(3);
  run_ranks(3, [&](cluster::Context& context) {
    Training training(context, {.parallel_mode = ParallelMode::kSemiAuto});
    training.loss.shard("softmax_cross_entropy", {{1, 3}, {1}});
    try {
      training.model->train(1, rows(DType::kI32, {.label_row = 4, .label = 3}));
    } catch (const InvalidIndex& error) {
      errors[static_cast<size_t>(context.rank())] = error.what();
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("column \"label\": row 4 holds 3 at [4]")));
}

TEST(BadIndex, OfTheTutorialsLossIsALabelToo) {
  const auto context = cluster::single_context(1);
  Classifier network;
  nn::SoftmaxCrossEntropyExpand loss({.sparse = true});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  Model model(*context, network, &loss, &optimizer);
  EXPECT_THAT([&] { model.train(1, rows(DType::kI32, {.label_row = 0, .label = 3})); },
              ThrowsMessage<InvalidIndex>(HasSubstr("column \"label\": row 0 holds 3 at [0]; an index of one_hot")));
}

}  // namespace
}  // namespace tessera::train
