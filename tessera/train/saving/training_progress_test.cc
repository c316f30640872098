// Where training goes on: after a stop, with batches of another size, with steps of more batches, on other ranks.
#include "tessera/train/saving/training_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "tessera/base/error.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/saving/data_states.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(TrainingProgress, IsBehindTheSameRowInBatchesOfAnySize) {
  const TrainingProgress saved{.step = 4, .epoch = 1, .step_in_epoch = 4, .position = {0, 4}, .rows_per_batch = 4};
  constexpr int64_t kBatches = 100;  // of an epoch
  for (const int64_t rows : {1, 2, 4, 8, 16}) {
    auto progress = saved;
    progress.count_in({kBatches, rows}, /*batches_per_step=*/1, /*accumulated=*/0);
    EXPECT_EQ(progress.position, (data::Position{0, 16 / rows})) << rows;
    EXPECT_EQ(progress.epochs_done(), 0) << rows;
  }
  auto progress = saved;
  EXPECT_THAT(
      [&] {
        progress.count_in({kBatches, 3}, 1, 0);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("saved after 16 rows of an epoch (4 batches of 4 rows of all "
                                               "ranks), which are no whole number of batches of 3 rows")));
  EXPECT_THAT(
      [&] {
        progress.count_in({kBatches, 8, /*is_repeated=*/true}, 1, 0);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("repeat()")));
  EXPECT_THAT(
      [&] {
        progress.count_in({kBatches, 4}, 3, 0);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("gradient_accumulation_steps that divides 4")));
  EXPECT_THAT(
      [&] {
        progress.count_in({kBatches, 4}, 3, 2);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("2 batches of train_step are accumulated")));
  EXPECT_EQ(progress.position, saved.position);
}

TEST(TrainingProgress, AtOrBehindTheLastBatchOfAnEpochIsWhereTheNextBegins) {
  const TrainingProgress saved{.step = 7, .epoch = 1, .step_in_epoch = 7, .position = {0, 7}, .rows_per_batch = 4};
  // 28 rows were read: batches of 14 end there, whole ones of 12 ended before, one of 4 fewer than 7 did, too.
  for (const EpochOfData& data : {EpochOfData{2, 14}, EpochOfData{2, 12}, EpochOfData{7, 4}, EpochOfData{3, 4}}) {
    auto progress = saved;
    progress.count_in(data, /*batches_per_step=*/1, /*accumulated=*/0);
    EXPECT_EQ(progress.position, (data::Position{1, 0})) << data.num_batches << " of " << data.rows_per_batch;
    EXPECT_EQ(progress.epochs_done(), 1);
  }
  auto progress = saved;
  EXPECT_THAT(
      [&] {
        progress.count_in({3, 4}, 2, 1);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("1 batches of train_step are accumulated")));
  EXPECT_EQ(progress.position, saved.position);
}

TEST(TrainingProgress, BehindMoreRowsThanCanBeCountedIsRefused) {
  TrainingProgress progress{.position = {0, int64_t{1} << 40}, .rows_per_batch = int64_t{1} << 30};
  EXPECT_THAT(
      [&] {
        progress.count_in({100, 8}, 1, 0);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("more rows than an int64 counts; it is damaged")));
}

TEST(TrainingProgress, OfAnEarlierVersionCountsBatches) {
  TrainingProgress progress{.epoch = 2, .step_in_epoch = 3, .position = {1, 3}};
  progress.count_in({100, 8}, 1, 0);
  EXPECT_EQ(progress.position, (data::Position{1, 3}));
  EXPECT_EQ(progress.rows_per_batch, 8);
}

TEST(TrainingProgress, AfterTheEndIsWhereAnEpochBegins) {
  TrainingProgress progress{.step = 3, .epoch = 1, .step_in_epoch = 3, .position = {0, 3}, .rows_per_batch = 4};
  progress.end();
  EXPECT_EQ(progress.position, (data::Position{1, 0}));
  EXPECT_EQ(progress.epochs_done(), 0);
  progress.end();
  EXPECT_EQ(progress.position, (data::Position{1, 0}));
}

class Trainings : public testing::Test {
 protected:
  static constexpr int64_t kRows = 32;
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "x.ckpt").string(); }

  // The numbers of the rows that were read.
  std::set<int64_t> take_read() {
    const std::lock_guard lock(mutex_);
    return std::exchange(read_, {});
  }
  data::Dataset rows(int64_t batch, const data::SourceOptions& options = {}) {
    const Type type{DType::kF32, {4}};
    const auto read = [this](int64_t index, std::span<const TensorView> outputs) {
      for (const auto& output : outputs) {
        copy_elements(Tensor::full(output.type(), static_cast<double>(index) / kRows).view(), output);
      }
      const std::lock_guard lock(mutex_);
      read_.insert(index);
    };
    return data::generator({{"x", type}, {"y", type}}, kRows, read, options).batch(batch);
  }

  // Counts steps; saves and stops after `last` of them.
  class StopAt : public Callback {
   public:
    explicit StopAt(int64_t last = 0, std::string path = "") : last_(last), path_(std::move(path)) {}
    void step_end(RunContext& run) override {
      if (++steps != last_) return;
      if (!path_.empty()) run.model.save_checkpoint(path_);
      run.request_stop();
    }
    int64_t steps = 0;

   private:
    int64_t last_;
    std::string path_;
  };

  struct Job {
    Job(cluster::Context& context, const ModelOptions& options) : model(context, network, &loss, &optimizer, options) {}
    int64_t train(const data::Dataset& dataset, const std::shared_ptr<StopAt>& stop = std::make_shared<StopAt>()) {
      model.train(1, dataset, {stop});
      return stop->steps;
    }
    nn::Dense network{4, 4};
    nn::MSELoss loss;
    nn::Momentum optimizer{{.learning_rate = 0.01, .momentum = 0.9}};
    Model model;
  };

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tessera-progress-{}", ::getpid());
  std::mutex mutex_;
  std::set<int64_t> read_;
};

std::set<int64_t> from_to(int64_t begin, int64_t end) {
  std::set<int64_t> all;
  for (int64_t i = begin; i < end; ++i) all.insert(i);
  return all;
}

TEST_F(Trainings, ResumedWithBatchesOfAnotherSizeReadTheRowsThatAreLeft) {
  const auto context = cluster::single_context(1);
  Job first(*context, {});
  EXPECT_EQ(first.train(rows(4), std::make_shared<StopAt>(4, path())), 4);
  for (const int64_t batch : {2, 4, 8, 16}) {
    Job next(*context, {});
    next.model.load_checkpoint(path());
    take_read();
    EXPECT_EQ(next.train(rows(batch)), 16 / batch);
    EXPECT_EQ(take_read(), from_to(16, kRows)) << batch;
  }
  Job next(*context, {});
  next.model.load_checkpoint(path());
  EXPECT_THAT([&] { next.train(rows(32)); }, ThrowsMessage<InvalidArgument>(HasSubstr("batches of 32 rows")));
  Job accumulating(*context, {.gradient_accumulation_steps = 8});
  accumulating.model.load_checkpoint(path());
  EXPECT_THAT([&] { accumulating.train(rows(4)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("gradient_accumulation_steps that divides 4")));
  Job halves(*context, {.gradient_accumulation_steps = 2});
  halves.model.load_checkpoint(path());
  EXPECT_EQ(halves.train(rows(4)), 2);
}

TEST_F(Trainings, ResumedWhereAnEpochOfOtherBatchesOrLessDataHasEndedGoOnWithTheNext) {
  const auto context = cluster::single_context(1);
  for (const int64_t steps : {6, 7}) {
    Job first(*context, {});
    EXPECT_EQ(first.train(rows(4), std::make_shared<StopAt>(steps, path())), steps);
    // 24 rows in whole batches of 12; 12 rows.
    for (const auto& [dataset, size, num_rows] : {std::tuple{rows(12).take(2), 2, 24}, {rows(4).take(3), 3, 12}}) {
      Job next(*context, {});
      next.model.load_checkpoint(path());
      take_read();
      const auto counted = std::make_shared<StopAt>();
      next.model.train(3, dataset, {counted});
      EXPECT_EQ(counted->steps, 2 * size) << steps << " steps were saved";
      EXPECT_EQ(next.model.step(), steps + 2 * size);
      EXPECT_EQ(next.model.position(), (data::Position{3, 0}));
      EXPECT_EQ(take_read(), from_to(0, num_rows));
    }
  }
}

TEST_F(Trainings, ResumedByMoreRanksOfShardsReadTheRowsThatAreLeft) {
  const auto run = [&](int ranks, int64_t steps, const std::string& load, const std::string& save) {
    run_ranks(ranks, [&](cluster::Context& context) {
      Job job(context, {.parallel_mode = ParallelMode::kDataParallel});
      if (!load.empty()) job.model.load_checkpoint(load);
      const auto dataset = rows(4, {.num_shards = ranks, .shard_id = context.rank()});
      const auto stop = save.empty() ? std::make_shared<StopAt>() : std::make_shared<StopAt>(steps, save);
      EXPECT_EQ(job.train(dataset, stop), steps);
    });
  };
  run(2, 2, "", path());  // 16 rows
  take_read();
  run(4, 1, path(), "");
  EXPECT_EQ(take_read(), from_to(16, kRows));
}

TEST_F(Trainings, OnBatchesOfMoreRowsThanCanBeCountedAreRefused) {
  run_ranks(2, [&](cluster::Context& context) {
    Job job(context, {.parallel_mode = ParallelMode::kDataParallel});
    const data::SourceOptions shard{.num_shards = 2, .shard_id = context.rank()};
    EXPECT_THAT([&] { job.train(rows((int64_t{1} << 62) + 1, shard)); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a batch of 4611686018427387905 rows on each of 2 ranks")));
  });
}

TEST_F(Trainings, AfterAnEarlyStopBeginAnEpochOfWhateverData) {
  const auto context = cluster::single_context(1);
  Job job(*context, {});
  EXPECT_EQ(job.train(rows(4), std::make_shared<StopAt>(3)), 3);
  take_read();
  EXPECT_EQ(job.train(rows(4)), 8);
  EXPECT_EQ(take_read(), from_to(0, kRows));
  EXPECT_EQ(job.train(rows(4), std::make_shared<StopAt>(7)), 7);
  EXPECT_EQ(job.train(rows(16)), 2);
}

TEST(DataStates, AreEachRanksAndTheSameForAnyWhereTheyAreAlike) {
  const std::string text = print_data_states({"one", "", "three\n"});
  EXPECT_EQ(find_data_state(text, 0, 3), "one");
  EXPECT_EQ(find_data_state(text, 1, 3), "");
  EXPECT_EQ(find_data_state(text, 2, 3), "three\n");
  EXPECT_EQ(find_data_state(text, 0, 2), std::nullopt);
  const std::string alike = print_data_states({"all", "all"});
  EXPECT_EQ(alike, "data states 2\n3\nall");
  EXPECT_EQ(find_data_state(alike, 6, 7), "all");
}

TEST(DataStates, OfAnotherTextAreNone) {
  for (const char* text : {"", "of somebody else", "data states", "data states 2\n", "data states 1\n9\nshort",
                           "data states 3\n1\na1\nb", "data states x\n1\na", "data states 1\n-1\na"}) {
    EXPECT_EQ(find_data_state(text, 0, 3), std::nullopt) << text;
  }
}

// Counts what is drawn of it.
class Drawn : public data::SourceState {
 public:
  explicit Drawn(int64_t first) : count_(first) {}
  std::string get(int64_t) override { return std::to_string(count_); }
  void set(const std::string& text) override { count_ = std::stoll(text); }
  int64_t draw() { return count_++; }

 private:
  int64_t count_;
};

class LossesOfSteps : public Callback {
 public:
  explicit LossesOfSteps(std::vector<double>& losses) : losses_(losses) {}
  void step_end(RunContext& run) override { losses_.push_back(run.loss); }

 private:
  std::vector<double>& losses_;
};

// Each rank draws other numbers, which no sample's place decides.
TEST(DataStates, OfACheckpointGoOnWithWhatWouldHaveBeenDrawn) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("tessera-drawn-{}.ckpt", ::getpid());
  run_ranks(2, [&](cluster::Context& context) {
    const auto train = [&](bool is_resumed) {
      const auto drawn = std::make_shared<Drawn>(1000 * context.rank());
      const auto read = [drawn](int64_t, std::span<const TensorView> outputs) {
        for (const TensorView& output : outputs) {
          const double value = 1.0 / static_cast<double>(1 + drawn->draw());
          copy_elements(Tensor::full({DType::kF32, output.shape}, value).view(), output);
        }
      };
      const auto rows =
          data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {1}}}}, 16, read, {}, drawn).batch(4);
      nn::Dense network(4, 1);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
      Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel, .seed = 5});
      std::vector<double> losses;
      if (is_resumed) {
        model.load_checkpoint(path.string());
      } else {
        model.train(1, rows);
        model.save_checkpoint(path.string());
      }
      model.train(1, rows, {LossesOfSteps(losses)});
      return losses;
    };
    const auto straight = train(/*is_resumed=*/false);
    ASSERT_EQ(straight.size(), 4U);
    EXPECT_EQ(train(/*is_resumed=*/true), straight);
  });
  std::filesystem::remove(path);
  std::filesystem::remove(path.string() + ".manifest");
}

}  // namespace
}  // namespace tessera::train
