// Ranks that give other rows to a step than the others: each hears of it before anything is computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/run_ranks.h"
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
