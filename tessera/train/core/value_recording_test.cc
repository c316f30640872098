// Trainings that record their values: on one rank and several, in several dtypes, with a fault in one operator of one
// rank, and beside the records of an earlier training.
#include "tessera/train/core/value_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/devices/faulty_kernels.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/monitors/record_values.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kRows = 8;
constexpr int64_t kSteps = 4;

struct Squash : nn::Cell {
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return ops::tanh(x); }
};

struct SquashNet : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", 6, 10);
  Squash& squash = child<Squash>("squash");
  nn::Dense& down = child<nn::Dense>("down", 10, 3);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(squash(up(x))); }
};

data::Dataset numbered_rows() {
  return data::generator({{"x", {DType::kF32, {6}}}, {"y", {DType::kF32, {3}}}}, kRows * kSteps,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           for (size_t column = 0; column < outputs.size(); ++column) {
                             Tensor values(DType::kF64, outputs[column].shape);
                             const auto at = values.values<double>();
                             for (size_t i = 0; i < at.size(); ++i) {
                               at[i] = random_normal(
                                   {.seed = 7, .stream = column, .step = static_cast<uint64_t>(index)}, i);
                             }
                             copy_elements(values.cast(DType::kF32).view(), outputs[column]);
                           }
                         })
      .batch(kRows);
}

class ValueRecords : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-records-{}-{}", test->name(), ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  struct Job {
    int num_ranks = 1;
    ModelOptions options = {};
    int fault_rank = -1;
    int64_t fault_step = 0;
    Callbacks callbacks = {};
  };
  // Trains an epoch. One of tanh's calls, of which each step has one, is wrong on one rank.
  static void train(const Job& job) {
    run_ranks(job.num_ranks, [&](cluster::Context& context) {
      const bool is_faulty = context.rank() == job.fault_rank;
      FaultyKernels kernels("tanh", is_faulty ? job.fault_step : 0);
      SquashNet network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05});
      ModelOptions options = job.options;
      if (job.num_ranks > 1 && options.parallel_mode == ParallelMode::kStandAlone) {
        options.parallel_mode = ParallelMode::kDataParallel;
      }
      options.session.backend = &kernels.backend();
      Model model(context, network, &loss, &optimizer, options);
      model.train(1, numbered_rows(), job.callbacks);
      EXPECT_EQ(kernels.num_calls(), kSteps);  // a batch each
    });
  }
  session::RecordComparison compare(const std::string& a, const std::string& b,
                                    std::optional<double> tolerance = std::nullopt) const {
    return session::compare_records(FileSystem::local(), path(a), path(b), {.tolerance = tolerance});
  }

  std::filesystem::path folder_;
};

TEST_F(ValueRecords, OfEqualTrainingsAreEqual) {
  train({.num_ranks = 4, .options = {.record_values = path("a")}});
  train({.num_ranks = 4, .options = {.record_values = path("b")}});
  const auto comparison = compare("a", "b");
  ASSERT_EQ(comparison.steps.size(), static_cast<size_t>(kSteps));
  for (const auto& step : comparison.steps) {
    EXPECT_TRUE(step.are_equal());
    EXPECT_EQ(step.num_left_only + step.num_right_only + step.num_not_comparable, 0);
    EXPECT_GT(step.num_equal, 20);
    EXPECT_THAT(step.odd_left, testing::IsEmpty());
  }
}

TEST_F(ValueRecords, FindThePlantedFaultByOperatorStepAndRank) {
  train({.num_ranks = 4, .options = {.record_values = path("good")}});
  train({.num_ranks = 4, .options = {.record_values = path("bad")}, .fault_rank = 2, .fault_step = 3});
  const auto comparison = compare("good", "bad");
  ASSERT_EQ(comparison.steps.size(), 3U);  // it ends where they part
  const auto& found = comparison.steps.back();
  EXPECT_EQ(found.step, 3);
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->name, "tanh \"squash\"");
  EXPECT_THAT(found.first->ranks, ElementsAre(2));
  EXPECT_THAT(found.first->regions, ElementsAre("[4:6,0:10]"));
  EXPECT_THAT(session::describe(3, *found.first), HasSubstr("step 3: tanh \"squash\" f32[8,10] differs on rank 2"));
  // What it is made of is equal.
  EXPECT_GT(found.num_equal, 5);
}

TEST_F(ValueRecords, OfOneRankAndFourAreCloseInEachValue) {
  train({.options = {.record_values = path("one")}});
  train({.num_ranks = 4, .options = {.record_values = path("four")}});
  const auto comparison = compare("one", "four", 1e-4);
  ASSERT_EQ(comparison.steps.size(), static_cast<size_t>(kSteps));
  for (const auto& step : comparison.steps) {
    EXPECT_EQ(step.num_beyond, 0) << (step.first_beyond ? session::describe(step.step, *step.first_beyond) : "");
    // What is never whole on four ranks, and what one rank has no step of its own for.
    EXPECT_LT(step.num_left_only, step.num_common / 4);
    EXPECT_LT(step.num_not_comparable, step.num_common / 4);
  }
  // Before a sum over ranks has come into it, the bits are equal.
  EXPECT_GT(comparison.steps[0].num_equal, 8);
}

TEST_F(ValueRecords, OfOneRankAndFourStillFindAFault) {
  train({.options = {.record_values = path("one")}});
  train({.num_ranks = 4, .options = {.record_values = path("four")}, .fault_rank = 1, .fault_step = 1});
  const auto comparison = compare("one", "four");
  ASSERT_EQ(comparison.steps.size(), 1U);
  ASSERT_TRUE(comparison.steps[0].first.has_value());
  EXPECT_EQ(comparison.steps[0].first->name, "tanh \"squash\"");
  EXPECT_FALSE(comparison.steps[0].first->is_cut_alike);
}

TEST_F(ValueRecords, OfOptimizerShardsAreThoseOfWholeParameters) {
  train({.num_ranks = 4, .options = {.record_values = path("whole")}});
  train({.num_ranks = 4,
         .options = {.parallel_optimizer = true, .parallel_optimizer_threshold = 0, .record_values = path("shards")}});
  const auto comparison = compare("whole", "shards", 1e-5);
  ASSERT_EQ(comparison.steps.size(), static_cast<size_t>(kSteps));
  for (const auto& step : comparison.steps) {
    EXPECT_EQ(step.num_beyond, 0) << (step.first_beyond ? session::describe(step.step, *step.first_beyond) : "");
    EXPECT_LT(step.num_left_only + step.num_right_only, step.num_common / 4);
  }
  const auto step = session::read_step(FileSystem::local(), path("shards"), 1);
  const auto moments = std::ranges::find_if(step.values, [](const auto& value) {
    return value.name.source == "moments.up.weight" && value.name.moment == session::ValueMoment::kAfter;
  });
  ASSERT_NE(moments, step.values.end());
  EXPECT_EQ(moments->pieces.size(), 4U);
  EXPECT_TRUE(moments->hash().has_value());
}

TEST_F(ValueRecords, OfBfloat16AreComparedByStatistics) {
  train({.options = {.record_values = path("f32")}});
  train({.options = {.precision = DType::kBF16, .record_values = path("bf16")}});
  const auto comparison = compare("f32", "bf16");
  EXPECT_EQ(comparison.left.precision, "f32");
  EXPECT_EQ(comparison.right.precision, "bf16");
  const auto& first = comparison.steps[0];
  EXPECT_GT(first.num_common, 10);
  EXPECT_GT(first.num_close, 0);
  EXPECT_GT(first.num_right_only, 0);  // casts
}

TEST_F(ValueRecords, OfMicroBatchesAreNumbered) {
  train({.options = {.gradient_accumulation_steps = 2, .record_values = path("a")}});
  const auto steps = session::recorded_steps(FileSystem::local(), path("a"));
  EXPECT_THAT(steps, ElementsAre(1, 2));
  const auto step = session::read_step(FileSystem::local(), path("a"), 1);
  std::set<int64_t> runs;
  for (const auto& value : step.values) {
    if (value.name.op == "tanh") runs.insert(value.name.run);
  }
  EXPECT_THAT(runs, ElementsAre(1, 2));
}

TEST_F(ValueRecords, AreOfTheStepsThatAreAskedFor) {
  train({.options = {.record_values = path("a"), .record_steps = "2,4-"}});
  EXPECT_THAT(session::recorded_steps(FileSystem::local(), path("a")), ElementsAre(2, 4));
  train({.callbacks = {RecordValues({.directory = path("b"), .steps = "*/3"})}});
  EXPECT_THAT(session::recorded_steps(FileSystem::local(), path("b")), ElementsAre(3));
  // A new training into the same folder leaves nothing of the old one.
  train({.options = {.record_values = path("a"), .record_steps = "1"}});
  EXPECT_THAT(session::recorded_steps(FileSystem::local(), path("a")), ElementsAre(1));
}

TEST_F(ValueRecords, ChangeNothingOfATraining) {
  std::vector<std::vector<double>> weights;
  for (const bool records : {false, true}) {
    const auto context = cluster::single_context(1);
    SquashNet network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05});
    ModelOptions options{.session = {.num_threads = 1}};
    if (records) options.record_values = path("a");
    Model model(*context, network, &loss, &optimizer, options);
    model.train(1, numbered_rows());
    weights.push_back(model.value("up.weight").to_doubles());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(ValueRecords, StopATrainingWhereItLeavesAnEarlierOne) {
  train({.num_ranks = 4, .options = {.record_values = path("good")}});
  train({.num_ranks = 4, .options = {.compare_values = path("good")}});
  EXPECT_THAT(
      [&] { train({.num_ranks = 4, .options = {.compare_values = path("good")}, .fault_rank = 3, .fault_step = 2}); },
      ThrowsMessage<Error>(AllOf(HasSubstr("the values are not those of"),
                                 HasSubstr("step 2: tanh \"squash\" f32[8,10] differs on rank 3"))));
  // Warned of, it goes on.
  train({.num_ranks = 4,
         .options = {.compare_values = path("good"), .on_difference = "warn"},
         .fault_rank = 3,
         .fault_step = 2});
}

TEST_F(ValueRecords, OfAPipelineAreItsParametersAndStates) {
  const auto record = [&](const std::string& name) {
    run_ranks(2, [&](cluster::Context& context) {
      SquashNet network;
      network.up.set_stage(0);
      network.squash.set_stage(0);
      network.down.set_stage(1);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kPipeline,
                   .pipeline = {.stages = 2, .micro_batches = 2, .schedule = "1f1b"},
                   .record_values = path(name)});
      model.train(1, numbered_rows());
    });
  };
  record("a");
  record("b");
  const auto comparison = compare("a", "b");
  ASSERT_EQ(comparison.steps.size(), static_cast<size_t>(kSteps));
  for (const auto& step : comparison.steps) {
    EXPECT_TRUE(step.are_equal());
    EXPECT_GE(step.num_equal, 2 * 8);  // four parameters and their moments, before and behind the step
  }
}

TEST_F(ValueRecords, OfStepsThatAreNoneAreRefused) {
  const auto with = [](ModelOptions options) { return [options] { train({.options = options}); }; };
  EXPECT_THAT(with({.record_values = path("a"), .record_steps = "first"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("record_steps: \"first\"")));
  EXPECT_THAT(with({.record_values = path("a"), .record_steps = "5-3"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("ends before it begins")));
  EXPECT_THAT(with({.compare_values = path("nothing")}),
              ThrowsMessage<InvalidArgument>(HasSubstr("there is no folder")));
  EXPECT_THAT(with({.compare_values = path("."), .on_difference = "stop"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("has no recorded steps")));
  EXPECT_THAT(with({.record_values = path("a"), .on_difference = "cry"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("on_difference must be")));
}

TEST_F(ValueRecords, OptionsWithoutAFolderAreSaidToHaveNoEffect) {
  const auto heard = [](const ModelOptions& options) {
    testing::internal::CaptureStderr();
    train({.num_ranks = 2, .options = options});
    return testing::internal::GetCapturedStderr();
  };
  const std::string both = heard({.record_steps = "2", .on_difference = "warn"});
  for (const char* words : {"record_steps has no effect without record_values, compare_values",
                            "on_difference has no effect without compare_values"}) {
    EXPECT_THAT(both, HasSubstr(words));
    EXPECT_EQ(both.find(words), both.rfind(words)) << "rank 0 says it";
  }
  EXPECT_THAT(heard({.record_values = path("a"), .record_steps = "2"}), testing::Not(HasSubstr("has no effect")));
}

TEST(RecordValues, WithoutAFolderIsRefused) {
  EXPECT_THAT([] { RecordValues(ValueRecordOptions{.steps = "5"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("RecordValues: it needs a directory to record into")));
  EXPECT_THAT([] { RecordValues(ValueRecordOptions{.directory = "a", .stops = false}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("stops = false has no effect without compare_with")));
}

TEST_F(ValueRecords, OfAnotherJobInTheFolderAreRefused) {
  const auto training = [&] { train({.options = {.record_values = path("a")}}); };
  {
    const checkpoint::DirectoryUse use{.file_name = ".tessera-lock.records.rank-0", .does = "records its values"};
    const checkpoint::DirectoryLock other(FileSystem::local(), path("a"), "job-b", 0, use);
    EXPECT_THAT(training, ThrowsMessage<InvalidArgument>(
                              AllOf(HasSubstr(path("a") + ": job \"job-b\" (process "),
                                    HasSubstr("records its values here; this one cannot: give each job a directory"))));
  }
  training();
  EXPECT_EQ(session::recorded_steps(FileSystem::local(), path("a")).size(), static_cast<size_t>(kSteps));
  EXPECT_FALSE(std::filesystem::exists(path("a") + "/.tessera-lock.records.rank-0")) << "it ends with its training";
}

// A model that trains an epoch.
struct Trained {
  Trained(cluster::Context& context, const ModelOptions& options, const Callbacks& callbacks = {})
      : model(context, network, &loss, &optimizer, options) {
    model.train(1, numbered_rows(), callbacks);
  }
  SquashNet network;
  nn::MSELoss loss;
  nn::Momentum optimizer{{.learning_rate = 0.05}};
  Model model;
};

TEST_F(ValueRecords, OfAnotherModelOfTheProcessInTheFolderAreRefused) {
  const auto job = cluster::single_context();
  const auto num_recorded = [&] { return session::recorded_steps(FileSystem::local(), path("a")).size(); };
  {
    const Trained first(*job, {.record_values = path("a")});
    EXPECT_THAT([&] { Trained(*job, {.record_values = path("a"), .record_steps = "1"}); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr(path("a") + ": this process records its values here already, for another model"),
                          HasSubstr("give each a directory of its own"))));
    EXPECT_EQ(num_recorded(), static_cast<size_t>(kSteps)) << "the first one's are there";
    const Trained second(*job, {.record_values = path("b")});
  }
  // One that is gone, or whose training has ended, is no other.
  const auto records = std::make_shared<RecordValues>(ValueRecordOptions{.directory = path("a"), .steps = "1-2"});
  const Trained once(*job, {}, {records});
  const Trained again(*job, {.record_values = path("a")});
  EXPECT_EQ(num_recorded(), static_cast<size_t>(kSteps));
}

TEST(RecordedSteps, AreListsRangesAndMultiples) {
  const auto of = [](const std::string& text) {
    const RecordedSteps steps(text);
    std::vector<int64_t> found;
    for (int64_t step = 1; step <= 12; ++step) {
      if (steps.contains(step)) found.push_back(step);
    }
    return found;
  };
  EXPECT_EQ(of("").size(), 12U);
  EXPECT_THAT(of("3"), ElementsAre(3));
  EXPECT_THAT(of("2-4, 7"), ElementsAre(2, 3, 4, 7));
  EXPECT_THAT(of("11-"), ElementsAre(11, 12));
  EXPECT_THAT(of("*/5,1"), ElementsAre(1, 5, 10));
  for (const char* text : {"0", "-3", "x", "1,,2", "*/0", "2-x", "1-2-3"}) {
    EXPECT_THROW(RecordedSteps{text}, InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tessera::train
