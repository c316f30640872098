// Initial values that differ between ranks: who takes whose, and what is said about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

// A dense layer whose weight each rank drew for itself.
std::unique_ptr<nn::Dense> make_network(const cluster::Context& context) {
  auto network = std::make_unique<nn::Dense>(2, 2);
  network->find_parameter("weight").data = Tensor::full({DType::kF32, {2, 2}}, 1.0 + context.rank());
  return network;
}

struct RankOutcome {
  std::vector<double> first_weights;  // of each rank, before training
  std::string log;
};

RankOutcome run(const ModelOptions& options) {
  RankOutcome outcome{.first_weights = std::vector<double>(2)};
  testing::internal::CaptureStderr();
  run_ranks(2, [&](cluster::Context& context) {
    const auto network = make_network(context);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Model model(context, *network, &loss, &optimizer, options);
    outcome.first_weights[static_cast<size_t>(context.rank())] = model.value("weight").to_doubles()[0];
    const bool reads_all = options.parallel_mode == ParallelMode::kSemiAuto;
    const Tensor x = Tensor::full({DType::kF32, {reads_all ? 4 : 2, 2}}, 1);
    for (int step = 0; step < 3; ++step) model.train_step({x.view(), x.view()}, 4);
  });
  outcome.log = testing::internal::GetCapturedStderr();
  return outcome;
}

// In a log, of whose lines the time does not count: it may have any digits.
size_t occurrences(const std::string& log, const std::string& part) {
  const auto text = std::regex_replace(log, std::regex("[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}"), "time");
  size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(DifferingInitialValues, SemiAutomaticTakesRankZerosAndSaysSoOnce) {
  const auto outcome = run({.parallel_mode = ParallelMode::kSemiAuto});
  EXPECT_THAT(outcome.first_weights, testing::ElementsAre(1, 1));
  EXPECT_EQ(occurrences(outcome.log, "the initial values of \"weight\""), 1u) << outcome.log;
  EXPECT_EQ(occurrences(outcome.log, "[W "), 1u) << outcome.log;
}

TEST(DifferingInitialValues, DataParallelKeepsThemAndSaysSoOnceAtTheFirstStep) {
  const auto outcome = run({.parallel_mode = ParallelMode::kDataParallel});
  EXPECT_THAT(outcome.first_weights, testing::ElementsAre(1, 2));
  EXPECT_EQ(occurrences(outcome.log, "rank 1 has other parameter values than rank 0 (weight)"), 1u) << outcome.log;
}

TEST(DifferingInitialValues, ParameterBroadcastGivesAllRankZerosInSilence) {
  const auto outcome = run({.parallel_mode = ParallelMode::kDataParallel, .parameter_broadcast = true});
  EXPECT_THAT(outcome.first_weights, testing::ElementsAre(1, 1));
  EXPECT_EQ(outcome.log, "");
}

// What three ranks log that have these seeds, and the first weight that each draws.
struct SeedOutcome {
  std::vector<double> weights = std::vector<double>(3);
  std::string log;
};

SeedOutcome run_with_seeds(ParallelMode mode, const std::vector<uint64_t>& seeds) {
  SeedOutcome outcome;
  testing::internal::CaptureStderr();
  run_ranks(3, [&](cluster::Context& context) {
    const auto rank = static_cast<size_t>(context.rank());
    nn::Dense network(2, 2);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = mode, .seed = seeds[rank]});
    outcome.weights[rank] = model.value("weight").to_doubles()[0];
  });
  outcome.log = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(DifferingSeeds, AreNamedOnceAndAllTakeRankZeros) {
  for (const auto mode : {ParallelMode::kDataParallel, ParallelMode::kSemiAuto, ParallelMode::kHybrid}) {
    const auto outcome = run_with_seeds(mode, {7, 8, 9});
    EXPECT_EQ(occurrences(outcome.log, "rank 1 has the seed 8, and 1 more rank has another than rank 0, which has 7: "),
              1u)
        << outcome.log;
    EXPECT_EQ(occurrences(outcome.log, "[W "), 1u) << outcome.log;
    EXPECT_EQ(outcome.weights[1], outcome.weights[0]);
    EXPECT_EQ(outcome.weights[0], run_with_seeds(mode, {7, 7, 7}).weights[0]);
  }
  EXPECT_EQ(
      occurrences(run_with_seeds(ParallelMode::kDataParallel, {7, 7, 9}).log, "rank 2 has the seed 9, rank 0 has 7: "),
      1u);
}

TEST(DifferingSeeds, AreEachRanksOwnWhereItTrainsByItself) {
  const auto outcome = run_with_seeds(ParallelMode::kStandAlone, {7, 8, 9});
  EXPECT_EQ(outcome.log, "");
  EXPECT_NE(outcome.weights[0], outcome.weights[1]);
  EXPECT_EQ(run_with_seeds(ParallelMode::kDataParallel, {7, 7, 7}).log, "");
}

// What a job of two ranks logs of which rank 1 has this optimizer instead of rank 0's.
template <typename Optimizer, typename Options>
std::string log_of_optimizers(const Options& first, const Options& second) {
  testing::internal::CaptureStderr();
  run_ranks(2, [&](cluster::Context& context) {
    nn::Dense network(2, 2);
    nn::MSELoss loss;
    Optimizer optimizer(context.rank() == 0 ? first : second);
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 1);
    for (int step = 0; step < 2; ++step) model.train_step({x.view(), x.view()}, 4);
  });
  return testing::internal::GetCapturedStderr();
}

TEST(DifferingOptimizers, AreToldByTheNumbersThatDiffer) {
  const auto log =
      log_of_optimizers<nn::SGD>(nn::SGDOptions{.learning_rate = 0.1}, nn::SGDOptions{.learning_rate = 0.2});
  EXPECT_EQ(occurrences(log, "rank 1 has other numbers of the optimizer than rank 0 (learning_rate 0.2, not 0.1)"), 1u)
      << log;
  EXPECT_EQ(occurrences(log, "parameter values"), 0u) << log;
  const auto both = log_of_optimizers<nn::Momentum>(nn::MomentumOptions{.learning_rate = 0.1, .momentum = 0.9},
                                                    nn::MomentumOptions{.learning_rate = 0.5, .momentum = 0.75});
  EXPECT_EQ(occurrences(both, "(learning_rate 0.5, not 0.1; momentum 0.75, not 0.9)"), 1u) << both;
}

TEST(DifferingGraphs, AreWarnedAboutOnceThoughTheRanksCommunicateAlike) {
  testing::internal::CaptureStderr();
  run_ranks(2, [&](cluster::Context& context) {
    nn::Dense network(2, 2);
    nn::MSELoss loss;
    nn::AdamW optimizer({.learning_rate = 0.1, .weight_decay = 0.1 * (context.rank() + 1)});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 1);
    for (int step = 0; step < 3; ++step) model.train_step({x.view(), x.view()}, 4);
  });
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(occurrences(log, "rank 1's graph train_step is not rank 0's"), 1u) << log;
  EXPECT_EQ(occurrences(log, "0.2"), 1u) << log;
  EXPECT_EQ(occurrences(log, "[W "), 1u) << log;
}

// Adds numbers that are its own.
class Shift : public nn::Cell {
 public:
  explicit Shift(const Tensor& numbers) : numbers_(numbers.clone()) {}
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    return dense_(ops::add(x, ops::reduce_mean(ops::constant(x.graph(), numbers_))));
  }

 private:
  Tensor numbers_;
  nn::Dense& dense_ = child<nn::Dense>("dense", 2, 2);
};

TEST(DifferingGraphs, WithManyNumbersAreShownWhereTheyDiffer) {
  testing::internal::CaptureStderr();
  run_ranks(2, [&](cluster::Context& context) {
    Tensor numbers = Tensor::full({DType::kF32, {1000}}, 0.5);
    numbers.values<float>()[700] += static_cast<float>(context.rank());
    Shift network(numbers);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 1);
    model.train_step({x.view(), x.view()}, 4);
  });
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(occurrences(log, "rank 1's graph train_step is not rank 0's"), 1u) << log;
  EXPECT_EQ(occurrences(log, "1.5"), 1u) << log;
  EXPECT_LT(log.size(), 1000U);
}

}  // namespace
}  // namespace tessera::train
