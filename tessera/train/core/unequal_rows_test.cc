// Ranks that give other rows than the others to a step, an evaluation or a prediction that they make together: each
// hears of it before anything is computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr int kRanksOfBatches = 3;

// One step, then one whose rows differ between the ranks, then one again; what each rank heard of the second one. No
// wait that the test needs comes near the deadline, of ranks on hosts of their own.
std::vector<std::string> heard_of_unequal_rows(const ModelOptions& options, bool have_compiled_both) {
  std::vector<std::string> all;
  std::mutex mutex;
  const auto train = [&](cluster::Context& context) {
    nn::Dense network(4, 2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, options);
    const auto step = [&](int64_t global_rows) {
      const bool is_whole = options.parallel_mode != ParallelMode::kDataParallel;
      const int64_t rows = is_whole ? global_rows : global_rows / kRanksOfBatches;
      const Tensor x = Tensor::full({DType::kF32, {rows, 4}}, 1);
      const Tensor y = Tensor::full({DType::kF32, {rows, 2}}, 1);
      return model.train_step({x.view(), y.view()}, global_rows);
    };
    step(12);
    if (have_compiled_both) step(6);
    try {
      step(context.rank() == 1 ? 6 : 12);
    } catch (const InvalidArgument& error) {
      const std::lock_guard lock(mutex);
      all.emplace_back(error.what());
    }
    EXPECT_EQ(model.step(), have_compiled_both ? 2 : 1);
    step(12);
  };
  run_ranks(kRanksOfBatches, train, {.timeout_ms = 600000, .ranks_per_host = 1});
  return all;
}

const auto kNamesTheRanks = AllOf(HasSubstr("train_step: the ranks make it together, so each must give as many rows"),
                                  HasSubstr("ranks 0, 2 give global_rows 12 (f32[12,4], f32[12,2]); "
                                            "rank 1 gives global_rows 6 (f32[6,4], f32[6,2]); leave out"));

TEST(UnequalRows, AreSaidOnEveryRankWhereOneWouldCompileAndTheTrainingMayGoOn) {
  for (const auto mode : {ParallelMode::kDataParallel, ParallelMode::kSemiAuto, ParallelMode::kAutomatic}) {
    ModelOptions options{.parallel_mode = mode, .seed = 7};
    if (mode == ParallelMode::kAutomatic) options.automatic.profile = compiler::example_profile();
    const auto errors = heard_of_unequal_rows(options, /*have_compiled_both=*/false);
    EXPECT_THAT(errors, AllOf(SizeIs(kRanksOfBatches), Each(kNamesTheRanks))) << to_string(mode);
  }
}

// The gradients would meet, as means over batches of two sizes.
TEST(UnequalRows, AreSaidWhereAllHaveCompiledBothBatches) {
  EXPECT_THAT(
      heard_of_unequal_rows({.parallel_mode = ParallelMode::kDataParallel, .seed = 7}, /*have_compiled_both=*/true),
      AllOf(SizeIs(kRanksOfBatches), Each(kNamesTheRanks)));
}

// Ranks 0 and 1 train a whole batch of 4 rows, then one to which rank 1 gives what the function makes.
std::vector<std::string> heard_of_own_columns(const std::function<std::vector<Tensor>()>& of_rank_1) {
  std::vector<std::string> all;
  std::mutex mutex;
  const auto train = [&](cluster::Context& context) {
    nn::Dense network(4, 2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel, .seed = 7});
    const std::vector<Tensor> whole = {Tensor::full({DType::kF32, {2, 4}}, 1), Tensor::full({DType::kF32, {2, 2}}, 1)};
    const auto step = [&](const std::vector<Tensor>& batch) {
      model.train_step({batch[0].view(), batch[1].view()}, 4);
    };
    step(whole);
    try {
      step(context.rank() == 1 ? of_rank_1() : whole);
    } catch (const InvalidArgument& error) {
      const std::lock_guard lock(mutex);
      all.emplace_back(error.what());
    }
    EXPECT_EQ(model.step(), 1);
    step(whole);
  };
  run_ranks(2, train, {.timeout_ms = 600000, .ranks_per_host = 1});
  return all;
}

TEST(UnequalRows, AreSaidWhereARankHasOtherRowsOfABatchThanItShould) {
  const auto errors = heard_of_own_columns([] {
    return std::vector<Tensor>{Tensor::full({DType::kF32, {1, 4}}, 1), Tensor::full({DType::kF32, {1, 2}}, 1)};
  });
  EXPECT_THAT(errors, AllOf(SizeIs(2), Each(HasSubstr("rank 0 gives global_rows 4 (f32[4,4], f32[4,2]); rank 1 gives "
                                                      "global_rows 4 (f32[4,4], f32[4,2]), of which it has 1 row in "
                                                      "place of 2; leave out"))));
}

TEST(UnequalRows, AreSaidWhereARankGivesANumberForAColumn) {
  const auto errors = heard_of_own_columns([] {
    return std::vector<Tensor>{Tensor::full({DType::kF32, {2, 4}}, 1), Tensor::scalar(1.0F)};
  });
  EXPECT_THAT(errors, AllOf(SizeIs(2), Each(HasSubstr("rank 0 gives global_rows 4 (f32[4,4], f32[4,2]); rank 1 gives "
                                                      "global_rows 4 (f32[4,4], f32[]); leave out"))));
}

// How ranks share a training in which every rank gives whole batches.
enum class OneBatch { kStrategies, kAutomatic, kServers, kStaleServers };

std::string name_of(OneBatch form) {
  switch (form) {
    case OneBatch::kStrategies: return "strategies";
    case OneBatch::kAutomatic: return "automatic";
    case OneBatch::kServers: return "servers";
    case OneBatch::kStaleServers: return "servers that do not wait";
  }
  return "";
}

bool has_servers(OneBatch form) { return form == OneBatch::kServers || form == OneBatch::kStaleServers; }

ModelOptions options_of(OneBatch form) {
  ModelOptions options{.parallel_mode = ParallelMode::kSemiAuto, .seed = 7, .metrics = {mean_loss()}};
  if (form == OneBatch::kAutomatic) {
    options.parallel_mode = ParallelMode::kAutomatic;
    options.automatic.profile = compiler::example_profile();
  }
  if (has_servers(form)) {
    options.parallel_mode = ParallelMode::kDataParallel;
    options.servers = 1;
  }
  if (form == OneBatch::kStaleServers) options.server_staleness = ServerStaleness::asynchronous();
  return options;
}

Tensor inputs(double value, int64_t rows = 4) { return Tensor::full({DType::kF32, {rows, 4}}, value); }

double step_of(Model& model, double value) {
  const Tensor x = inputs(value);
  const Tensor y = Tensor::full({DType::kF32, {4, 2}}, 1);
  return model.train_step({x.view(), y.view()}, 4);
}

// Each rank trains a step, makes the call as its rank, and then as rank 0, which all do: what each has heard of the
// first call. There is one rank more where one is a server.
std::vector<std::string> heard_of_call(OneBatch form, const std::function<void(Model&, int rank)>& call) {
  std::vector<std::string> all;
  std::mutex mutex;
  const auto use = [&](cluster::Context& context) {
    nn::Dense network(4, 2);
    if (has_servers(form)) network.set_on_servers();
    if (form == OneBatch::kStrategies) network.shard("matmul", {{1, 1}, {2, 1}});
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, options_of(form));
    step_of(model, 1);
    try {
      call(model, context.rank());
    } catch (const InvalidArgument& error) {
      const std::lock_guard lock(mutex);
      all.emplace_back(error.what());
    }
    call(model, 0);
  };
  run_ranks(has_servers(form) ? 3 : 2, use, {.timeout_ms = 600000});
  return all;
}

// Every rank has heard it.
void expect_heard(OneBatch form, const std::function<void(Model&, int rank)>& call, const std::string& text) {
  EXPECT_THAT(heard_of_call(form, call), AllOf(SizeIs(has_servers(form) ? 3 : 2), Each(HasSubstr(text))))
      << name_of(form);
}

constexpr OneBatch kForms[] = {OneBatch::kStrategies, OneBatch::kAutomatic, OneBatch::kServers,
                               OneBatch::kStaleServers};

// Else each rank would get the answer for another's rows.
TEST(OtherRows, OfAPredictionAreSaid) {
  for (const OneBatch form : kForms) {
    expect_heard(
        form, [](Model& model, int rank) { model.predict({inputs(rank == 1 ? 2 : 1)}); },
        "predict: the rows of rank 1 are not rank 0's, though each rank takes its part of one batch");
    expect_heard(
        form, [](Model& model, int rank) { model.predict({inputs(1, rank == 1 ? 5 : 4)}); }, "rank 1 gives f32[5,4]");
  }
}

TEST(OtherRows, OfAStepAreSaidAndNothingIsTrained) {
  for (const OneBatch form : kForms) {
    if (form == OneBatch::kStaleServers) continue;  // whose workers are at other steps
    expect_heard(
        form,
        [](Model& model, int rank) {
          const int64_t before = model.step();
          try {
            step_of(model, rank == 1 ? 2 : 1);
          } catch (const InvalidArgument&) {
            EXPECT_EQ(model.step(), before);
            throw;
          }
        },
        "train_step: the rows of rank 1 are not rank 0's");
  }
}

data::Dataset rows_in_memory(double value, int64_t rows) {
  return data::tensors({{"x", inputs(value, rows)}, {"y", Tensor::full({DType::kF32, {rows, 2}}, 1)}}).batch(4);
}

TEST(OtherRows, OfAnEvaluationAreSaid) {
  for (const OneBatch form : kForms) {
    expect_heard(
        form, [](Model& model, int rank) { model.eval(rows_in_memory(rank == 1 ? 2 : 1, 8)); },
        "eval: rank 1's rows are not rank 0's, though each rank takes its part of the same batches");
    expect_heard(
        form, [](Model& model, int rank) { model.eval(rows_in_memory(1, rank == 1 ? 12 : 8)); },
        "eval: rank 1 has 3 batches an epoch, rank 0 has 2");
  }
}

// Rows that are known when they are read: from `first_other` on they are other ones.
data::Dataset rows_of_a_function(int64_t num_rows, int64_t first_other) {
  const auto read = [first_other](int64_t row, std::span<const TensorView> columns) {
    const float value = row >= first_other ? 2.0F : 1.0F;
    for (const TensorView& column : columns) std::fill_n(column.as<float>(), column.num_elements(), value);
  };
  return data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {2}}}}, num_rows, read).batch(4);
}

TEST(OtherRows, OfAnEvaluationThatAFunctionGivesAreSaidWithTheirBatch) {
  const auto call = [](Model& model, int rank) { model.eval(rows_of_a_function(8, rank == 1 ? 5 : 8)); };
  for (const OneBatch form : kForms) expect_heard(form, call, "eval: batch 2: the rows of rank 1 are not rank 0's");
}

// Four batches of a function, of which this rank gives other rows from `first_other` on.
std::function<void(Model&, int rank)> training_with_other_rows(int of_rank, int64_t first_other) {
  return [=](Model& model, int rank) {
    const int64_t before = model.step();
    const int64_t heard_at = first_other < 8 ? 1 : 3;
    try {
      model.train(1, rows_of_a_function(16, rank == of_rank ? first_other : 16));
    } catch (const InvalidArgument&) {
      EXPECT_EQ(model.step(), before + heard_at);
      throw;
    }
    EXPECT_EQ(model.step(), before + 4);
  };
}

TEST(OtherRows, OfATrainingThatAFunctionGivesAreSaidWithTheirBatch) {
  for (const OneBatch form : kForms) {
    if (form == OneBatch::kStaleServers) continue;  // whose workers are at other steps
    const int last = has_servers(form) ? 2 : 1;
    expect_heard(form, training_with_other_rows(last, 5),
                 fmt::format("train: epoch 1, batch 2: the rows of rank {} are not rank 0's", last));
    expect_heard(form, training_with_other_rows(0, 5),
                 fmt::format("train: epoch 1, batch 2: the rows of {} are not rank 0's",
                             has_servers(form) ? "ranks 1, 2" : "rank 1"));
  }
}

TEST(OtherRows, OfABatchOfATrainingThatIsNotComparedAreSaidAtTheNextThatIs) {
  expect_heard(OneBatch::kStrategies, training_with_other_rows(1, 8),
               "train: epoch 1, batch 4, compared 2 batches after the latest one: the rows of rank 1 are not rank 0's");
}

TEST(OtherRows, OfNoRankAreSaidNowhereInATraining) {
  for (const OneBatch form : {OneBatch::kStrategies, OneBatch::kAutomatic, OneBatch::kServers}) {
    EXPECT_THAT(heard_of_call(form, training_with_other_rows(-1, 0)), SizeIs(0)) << name_of(form);
  }
}

// Of a model that has trained a step, or none: each rank predicts for rows of its own what all of them together predict
// for these.
void expect_own_predictions(const ModelOptions& options, bool is_trained) {
  run_ranks(2, [&](cluster::Context& context) {
    nn::Dense network(4, 2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, options);
    if (is_trained) {
      const int64_t rows = options.parallel_mode == ParallelMode::kDataParallel ? 2 : 4;
      const Tensor x = inputs(1, rows);
      const Tensor y = Tensor::full({DType::kF32, {rows, 2}}, 1);
      model.train_step({x.view(), y.view()}, 4);
    }
    std::vector<std::vector<double>> expected;
    for (const int rank : {0, 1}) expected.push_back(model.predict({inputs(1 + rank, 3)}).to_doubles());
    const auto own = model.predict({inputs(1 + context.rank(), 3)}).to_doubles();
    EXPECT_EQ(own, expected[static_cast<size_t>(context.rank())]);
    EXPECT_NE(own, expected[static_cast<size_t>(1 - context.rank())]);
  });
}

TEST(OtherRows, OfAPredictionThatNoRanksShareAreEachRanksOwn) {
  expect_own_predictions({.parallel_mode = ParallelMode::kDataParallel, .seed = 7}, /*is_trained=*/true);
  expect_own_predictions({.parallel_mode = ParallelMode::kSemiAuto, .seed = 7}, /*is_trained=*/true);
  ModelOptions automatic{.parallel_mode = ParallelMode::kAutomatic, .seed = 7};
  automatic.automatic.profile = compiler::example_profile();
  expect_own_predictions(automatic, /*is_trained=*/false);
}

// Two ranks that both give a batch of so many rows, as one that is alone would, and say nothing of other rows.
std::vector<std::string> heard_of_rows_without_a_part(int64_t rows) {
  std::vector<std::string> all;
  std::mutex mutex;
  const auto train = [&](cluster::Context& context) {
    nn::Dense network(4, 2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel, .seed = 7});
    const Tensor x = Tensor::full({DType::kF32, {rows, 4}}, 1);
    const Tensor y = Tensor::full({DType::kF32, {rows, 2}}, 1);
    try {
      model.train_step({x.view(), y.view()}, rows);
    } catch (const InvalidArgument& error) {
      const std::lock_guard lock(mutex);
      all.emplace_back(error.what());
    }
    EXPECT_EQ(model.step(), 0);
  };
  run_ranks(2, train, {.timeout_ms = 600000, .ranks_per_host = 1});
  return all;
}

TEST(UnequalRows, OfARankThatGivesNoPartOfTheBatchAreSaidWithWhatToDo) {
  EXPECT_THAT(heard_of_rows_without_a_part(20),
              UnorderedElementsAre(
                  AllOf(HasSubstr("rank 0 must give 10 rows of 20 (global_rows=20), it gave 20; give rows 0:10 of the "
                                  "batch and global_rows=20, or, where what it gave is its part, as with num_shards"),
                        HasSubstr("global_rows= the rows of all ranks")),
                  HasSubstr("rank 1 must give 10 rows of 20 (global_rows=20), it gave 20; give rows 10:20 of the "
                            "batch and global_rows=20")));
  EXPECT_THAT(heard_of_rows_without_a_part(10),
              UnorderedElementsAre(HasSubstr("give rows 0:5 of the batch and global_rows=10, or, where"),
                                   HasSubstr("give rows 5:10 of the batch and global_rows=10, or, where")));
}

}  // namespace
}  // namespace tessera::train
