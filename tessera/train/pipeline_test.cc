// Training in a pipeline through Model: data sets, evaluation, prediction, checkpoints, and what is refused. That the
// numbers are those of one device for any schedule is shown in tests/equivalence/pipelines_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <mutex>

#include "tessera/base/logging.h"
#include "tessera/base/random.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/session/pipelined_step.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr int64_t kMicroBatches = 4;
constexpr int64_t kRows = 12;
constexpr int64_t kSteps = 3;

struct Network : nn::Cell {
  // On so many stages; 0: none is named.
  explicit Network(int stages) {
    if (stages == 0) return;
    up.set_stage(0);
    dropout.set_stage(0);
    middle.set_stage(stages / 2);
    down.set_stage(stages - 1);
  }
  nn::Dense& up = child<nn::Dense>("up", 6, 9);
  nn::Dropout& dropout = child<nn::Dropout>("dropout", 0.7);
  nn::Dense& middle = child<nn::Dense>("middle", 9, 9);
  nn::Dense& down = child<nn::Dense>("down", 9, 4);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(middle(dropout(ops::tanh(up(x)))))); }
};

data::Dataset samples(int64_t rows_of_batch) {
  return data::generator({{"x", {DType::kF32, {6}}}, {"y", {DType::kF32, {4}}}}, kRows * kSteps,
                         [](int64_t row, std::span<const TensorView> columns) {
                           for (size_t column = 0; column < columns.size(); ++column) {
                             auto* at = columns[column].as<float>();
                             for (int64_t i = 0; i < columns[column].num_elements(); ++i) {
                               at[i] = static_cast<float>(
                                   random_normal({.seed = 3, .stream = column, .step = static_cast<uint64_t>(row)}, i));
                             }
                           }
                         })
      .batch(rows_of_batch);
}

ModelOptions pipeline_of(int stages) {
  return {.parallel_mode = ParallelMode::kPipeline,
          .pipeline = {.stages = stages,
                       .micro_batches = kMicroBatches,
                       .schedule = "1f1b",
                       .profile = compiler::example_profile()},  // measuring takes longer than these trainings
          .seed = 7,
          .metrics = {mean_loss()}};
}

// One device on the same micro-batches.
ModelOptions accumulated() {
  return {.gradient_accumulation_steps = kMicroBatches, .seed = 7, .metrics = {mean_loss()}};
}

class NoteLosses : public Callback {
 public:
  explicit NoteLosses(std::vector<double>& losses) : losses_(losses) {}
  void step_end(RunContext& run) override { losses_.push_back(run.loss); }

 private:
  std::vector<double>& losses_;
};

struct Outcome {
  std::vector<double> losses;
  double evaluated = 0;
  std::vector<double> predicted;
  std::map<std::string, std::vector<double>> values;
};

struct Steps {
  std::string load = {};  // before
  int64_t epochs = 2;
  std::string save = {};  // afterwards
  ParallelMode mode = ParallelMode::kPipeline;
  std::function<void(PipelineOptions&)> change = {};  // what a pipeline is told
};

Outcome train(int stages, int ranks, const Steps& steps) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(ranks, [&](cluster::Context& context) {
    Network network(stages);
    nn::MSELoss loss;
    nn::Adam optimizer({.learning_rate = 0.02});
    auto options = stages > 0 ? pipeline_of(stages) : accumulated();
    if (stages > 0) options.parallel_mode = steps.mode;
    if (steps.change) steps.change(options.pipeline);
    Model model(context, network, &loss, &optimizer, options);
    const auto rows = samples(stages > 0 ? kRows : kRows / kMicroBatches);
    if (!steps.load.empty()) model.load_checkpoint(steps.load, {.accept_other_jobs = true});
    std::vector<double> losses;
    model.train(steps.epochs, rows, {std::make_shared<NoteLosses>(losses)});
    if (!steps.save.empty()) model.save_checkpoint(steps.save, {.integrated = false});
    const double evaluated = model.eval(samples(kRows)).at("loss");
    const auto predicted = model.predict({Tensor::full({DType::kF32, {5, 6}}, 0.5)}).to_doubles();
    std::map<std::string, std::vector<double>> values;
    for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) outcome = {losses, evaluated, predicted, values};
    // All ranks know the same.
    EXPECT_EQ(losses.size(), static_cast<size_t>(steps.epochs * kSteps));
  });
  return outcome;
}

void expect_alike(const Outcome& one, const Outcome& many) {
  EXPECT_LT(relative_deviation(one.losses, many.losses), 1e-5);
  EXPECT_NEAR(one.evaluated, many.evaluated, 1e-5);
  EXPECT_LT(relative_deviation(one.predicted, many.predicted), 1e-5);
  for (const auto& [name, value] : many.values) {
    EXPECT_LT(relative_deviation(one.values.at(name), value), 1e-4) << name;
  }
}

class PipelineTraining : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-pipeline-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(PipelineTraining, TrainsEvaluatesAndPredictsAsOneDevice) {
  const auto one = train(0, 1, {});
  expect_alike(one, train(2, 2, {}));
  expect_alike(one, train(2, 4, {}));
  expect_alike(one, train(3, 3, {}));
}

TEST_F(PipelineTraining, AutomaticParallelismFindsWhereToCut) {
  const auto one = train(0, 1, {});
  expect_alike(one, train(2, 2, {.mode = ParallelMode::kAutomatic}));
  expect_alike(one, train(2, 4, {.mode = ParallelMode::kAutomatic}));
  expect_alike(one, train(3, 3, {.mode = ParallelMode::kAutomatic}));
}

// Where links are slow gradients cost much, and little is sent between stages.
TEST_F(PipelineTraining, AutomaticParallelismFindsHowManyStages) {
  set_log_level(LogLevel::kInfo);
  const auto log_of = [](const std::function<void()>& run) {
    testing::internal::CaptureStderr();
    run();
    return testing::internal::GetCapturedStderr();
  };
  const auto one = train(0, 1, {});
  const auto log = log_of([&] {
    expect_alike(one, train(2, 4, {.mode = ParallelMode::kAutomatic, .change = [](PipelineOptions& pipeline) {
                                     pipeline.stages = StageCount::automatic();
                                     pipeline.profile->intra_host.bytes_per_second = 1e4;
                                   }}));
  });
  EXPECT_THAT(log, testing::HasSubstr("cut into 2 stages of 3 + 1 ranks; by the profile"));
  // The number of micro-batches, too.
  EXPECT_THAT(log_of([] {
                const auto many =
                    train(2, 4, {.mode = ParallelMode::kAutomatic, .change = [](PipelineOptions& pipeline) {
                                   pipeline.stages = StageCount::automatic();
                                   pipeline.micro_batches = 0;
                                 }});
                EXPECT_LT(many.losses.back(), many.losses.front());
              }),
              testing::HasSubstr("cut into"));
  // A single layer is not cut.
  EXPECT_THAT(log_of([] {
                run_ranks(2, [](cluster::Context& context) {
                  nn::Dense network(6, 4);
                  nn::MSELoss loss;
                  nn::Adam optimizer({.learning_rate = 0.02});
                  auto options = pipeline_of(2);
                  options.parallel_mode = ParallelMode::kAutomatic;
                  options.pipeline.stages = StageCount::automatic();
                  Model model(context, network, &loss, &optimizer, options);
                  std::vector<double> losses;
                  model.train(2, samples(kRows), {std::make_shared<NoteLosses>(losses)});
                  EXPECT_LT(losses.back(), losses.front());
                });
              }),
              testing::HasSubstr("cut into 1 stage; by the profile"));
  set_log_level(LogLevel::kWarning);
}

TEST_F(PipelineTraining, IsPlannedByWhatTheRanksMeasureUnlessAProfileIsGiven) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "measuring takes minutes with ThreadSanitizer";
#endif
  set_log_level(LogLevel::kInfo);
  for (const auto mode : {ParallelMode::kPipeline, ParallelMode::kAutomatic}) {
    for (const bool is_given : {false, true}) {
      testing::internal::CaptureStderr();
      run_ranks(2, [&](cluster::Context& context) {
        Network network(2);
        nn::MSELoss loss;
        nn::Adam optimizer({.learning_rate = 0.02});
        auto options = pipeline_of(2);
        options.parallel_mode = mode;
        options.pipeline.schedule = "auto";
        if (!is_given) options.pipeline.profile.reset();
        Model model(context, network, &loss, &optimizer, options);
        model.train(1, samples(kRows));
      });
      const std::string name = is_given ? compiler::example_profile().name : "measured when training began";
      const auto log = testing::internal::GetCapturedStderr();
      EXPECT_THAT(log, testing::ContainsRegex("pipeline of 2 stages, 4 micro-batches, .*: by the profile \"" + name +
                                              "\" idle"));
      const auto found = fmt::format("cut into 2 stages; by the profile \"{}\" a step takes", name);
      EXPECT_EQ(log.find(found) != std::string::npos, mode == ParallelMode::kAutomatic) << log;
    }
  }
  set_log_level(LogLevel::kWarning);
}

TEST_F(PipelineTraining, AutomaticParallelismSaysHowManyStagesThereCanBe) {
  run_ranks(4, [](cluster::Context& context) {
    Network network(2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kAutomatic,
                 .pipeline = {.stages = 4, .micro_batches = 4, .profile = compiler::example_profile()}});
    try {
      model.train(1, samples(kRows));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("4 stages cannot be cut"));
      EXPECT_THAT(error.what(), testing::HasSubstr("use at most 3 stages"));
    }
  });
}

TEST_F(PipelineTraining, GoesOnWithAnotherNumberOfStages) {
  // A training that had ended: its epochs count from 1 again.
  const auto whole = train(0, 1, {.epochs = 4});
  train(2, 2, {.epochs = 2, .save = in("two/stages")});
  auto rest = whole;
  rest.losses.erase(rest.losses.begin(), rest.losses.begin() + 2 * kSteps);
  expect_alike(rest, train(3, 3, {.load = in("two/stages.ckpt"), .epochs = 2}));
  expect_alike(rest, train(2, 4, {.load = in("two/stages.ckpt"), .epochs = 2}));
}

TEST_F(PipelineTraining, TakesEveryScheduleThatHasANameOrSaysWhatItWants) {
  int num_taken = 0;
  for (const auto& name : pipeline::schedule_names()) {
    try {
      run_ranks(2, [&](cluster::Context& context) {
        Network network(2);
        nn::MSELoss loss;
        nn::Adam optimizer({.learning_rate = 0.02});
        auto options = pipeline_of(2);
        options.pipeline.schedule = name;
        Model model(context, network, &loss, &optimizer, options);
        model.train(1, samples(kRows));
      });
      ++num_taken;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("pipeline schedule \"" + name + "\": "));
    }
  }
  EXPECT_GE(num_taken, 4);
}

// What a checkpoint's slices are found by: the parameters of the stage, and the optimizer's states of them.
TEST_F(PipelineTraining, EachStageWritesHowItsParametersAndTheirStatesAreSplit) {
  for (const bool has_shards : {false, true}) {
    run_ranks(4, [&](cluster::Context& context) {
      Network network(2);
      network.up.shard("matmul", {{1, 1}, {2, 1}});
      nn::MSELoss loss;
      nn::Adam optimizer({.learning_rate = 0.02});
      auto options = pipeline_of(2);
      options.strategy_ckpt_save_file = in(fmt::format("stage{}.json", context.rank() / 2));
      options.parallel_optimizer = has_shards;
      options.parallel_optimizer_threshold = 0;
      Model model(context, network, &loss, &optimizer, options);
      model.build(samples(kRows));
    });
    std::map<std::string, checkpoint::ParameterLayout> layouts;
    for (const int stage : {0, 1}) {
      for (const auto& layout :
           checkpoint::read_strategy_file(FileSystem::local(), in(fmt::format("stage{}.json", stage))).layouts) {
        EXPECT_TRUE(layouts.emplace(layout.name, layout).second) << layout.name << " is of two stages";
      }
    }
    for (const char* cell : {"up", "middle", "down"}) {
      for (const char* name : {"weight", "bias"}) {
        const auto parameter = fmt::format("{}.{}", cell, name);
        ASSERT_TRUE(layouts.contains(parameter)) << parameter;
        auto expected = layouts.at(parameter);
        for (const char* state : {"moment1.", "moment2."}) {
          expected.name = state + parameter;
          ASSERT_TRUE(layouts.contains(expected.name)) << expected.name;
          EXPECT_EQ(layouts.at(expected.name), expected) << expected.name;
        }
      }
    }
    EXPECT_EQ(layouts.at("moment1.up.weight").tensor_map, (std::vector<std::vector<int64_t>>{{0}, {}}));
    EXPECT_EQ(layouts.at("moment1.down.weight").num_optimizer_shards(), has_shards ? 2 : 1);
  }
}

TEST_F(PipelineTraining, PredictsBeforeItIsTrained) {
  run_ranks(2, [](cluster::Context& context) {
    Network network(2);
    Model model(context, network, nullptr, nullptr, pipeline_of(2));
    EXPECT_EQ(model.predict({Tensor::full({DType::kF32, {5, 6}}, 0.5)}).shape(), (Shape{5, 4}));
  });
}

// Of a network whose layers are split within their stages, by a model that trains and one that does not.
TEST_F(PipelineTraining, PredictsByACheckpointWithoutTraining) {
  std::vector<double> expected;
  const Tensor rows = Tensor::full({DType::kF32, {6, 6}}, 0.5);
  run_ranks(1, [&](cluster::Context& context) {
    Network network(0);
    Model model(context, network, nullptr, nullptr, {.seed = 7});
    model.save_checkpoint(in("whole"));
    expected = model.predict({rows}).to_doubles();
  });
  for (const bool trains : {false, true}) {
    std::mutex mutex;
    run_ranks(4, [&](cluster::Context& context) {
      Network network(2);
      network.up.shard("matmul", {{1, 1}, {2, 1}});
      nn::MSELoss loss;
      nn::Adam optimizer({.learning_rate = 0.02});
      auto options = pipeline_of(2);
      options.seed = 8;
      Model model(context, network, trains ? &loss : nullptr, trains ? &optimizer : nullptr, options);
      model.build_predict({rows.type()});
      model.load_parameters(in("whole.ckpt"));
      const auto predicted = model.predict({rows}).to_doubles();
      const bool has_first = model.session().values().read("up.weight").num_elements() > 0;
      if (trains) model.train(1, samples(kRows));
      const auto again = model.predict({rows}).to_doubles();
      const std::lock_guard lock(mutex);
      EXPECT_LT(relative_deviation(expected, predicted), 1e-6);
      EXPECT_EQ(again == predicted, !trains);
      // Each rank has its stage's alone, unless a training step is still to say where they lie.
      EXPECT_EQ(has_first, trains || context.rank() < 2);
    });
  }
}

TEST_F(PipelineTraining, StopsWithNothingChangedWhereTheLossIsNotFinite) {
  run_ranks(2, [](cluster::Context& context) {
    Network network(2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, pipeline_of(2));
    Tensor x = Tensor::full({DType::kF32, {kRows, 6}}, 1);
    const Tensor y = Tensor::full({DType::kF32, {kRows, 4}}, 1);
    model.train_step({x.view(), y.view()}, kRows);
    std::map<std::string, std::vector<double>> before;
    for (const auto& name : model.names()) before[name] = model.value(name).to_doubles();
    // In the last micro-batch.
    x.values<float>()[x.values<float>().size() - 1] = std::numeric_limits<float>::infinity();
    x.values<float>()[x.values<float>().size() - 2] = -std::numeric_limits<float>::infinity();
    EXPECT_THROW(model.train_step({x.view(), y.view()}, kRows), executor::NonFiniteLoss);
    for (const auto& [name, value] : before) EXPECT_EQ(model.value(name).to_doubles(), value) << name;
    x = Tensor::full({DType::kF32, {kRows, 6}}, 1);
    EXPECT_TRUE(std::isfinite(model.train_step({x.view(), y.view()}, kRows)));
  });
}

// Stages of two ranks: each has groups that the other stage's ranks are not in.
TEST_F(PipelineTraining, StandsBesideAnotherOfTheSameRanks) {
  run_ranks(4, [](cluster::Context& context) {
    nn::MSELoss loss;
    nn::Adam optimizer({.learning_rate = 0.02});
    Network one(2);
    Model first(context, one, &loss, &optimizer, pipeline_of(2));
    first.train(1, samples(kRows));
    Network another(2);
    Model second(context, another, &loss, &optimizer, pipeline_of(2));
    second.train(1, samples(kRows));
    EXPECT_EQ(first.value("up.weight").to_doubles(), second.value("up.weight").to_doubles());
  });
}

TEST_F(PipelineTraining, IsPlannedOnce) {
  struct Counted : Network {
    Counted() : Network(2) {}
    int num_traces = 0;
    ir::Value construct(ir::Value x) override {
      ++num_traces;
      return Network::construct(x);
    }
  };
  run_ranks(2, [](cluster::Context& context) {
    Counted network;
    nn::MSELoss loss;
    nn::Adam optimizer({.learning_rate = 0.02});
    Model model(context, network, &loss, &optimizer, pipeline_of(2));
    network.num_traces = 0;
    model.build(samples(kRows));
    EXPECT_EQ(network.num_traces, 2) << "once for the whole batch, once for a micro-batch";
  });
}

// The second stage fails in its first micro-batch, when it is to receive the next one already.
TEST_F(PipelineTraining, LeavesNoMessageUnderWayWhenAPhaseFails) {
  struct DropsTwice : Network {
    DropsTwice() : Network(2) { late.set_stage(1); }
    nn::Dropout& late = child<nn::Dropout>("late", 0.7);
    ir::Value construct(ir::Value x) override { return late(Network::construct(x)); }
  };
  std::promise<void> promise;
  const auto failed = promise.get_future();
  bool failed_before_it_came = false;
  const auto fail_in_a_phase = [&] {
    run_ranks(2, [&](cluster::Context& context) {
      DropsTwice network;
      nn::MSELoss loss;
      nn::Adam optimizer({.learning_rate = 0.02});
      Model model(context, network, &loss, &optimizer, pipeline_of(2));
      model.train(1, samples(kRows));
      int phases = 0;
      model.train_executable()->set_before_update([&](const TensorView&) {
        if (context.rank() == 1) throw Error("no room for a phase");
        if (++phases != 2) return;
        failed_before_it_came = failed.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
      });
      try {
        model.train_executable()->run();
      } catch (const Error&) {
        if (context.rank() == 1) promise.set_value();
        throw;
      }
    });
  };
  EXPECT_THAT(fail_in_a_phase, testing::ThrowsMessage<Error>(testing::HasSubstr("rank 1: no room for a phase")));
  EXPECT_FALSE(failed_before_it_came);
}

// All that a rank has, by name, bit by bit.
std::map<std::string, std::vector<std::byte>> bits_of(Model& model) {
  std::map<std::string, std::vector<std::byte>> bits;
  for (const auto& name : model.session().names()) {
    const Tensor value = model.session().values().read(name);
    bits[name].assign(value.bytes().begin(), value.bytes().end());
  }
  return bits;
}

// The table of the embedding is the output projection; statistics are moved, noise is drawn.
struct Tied : nn::Cell {
  explicit Tied(int stages) {
    words.set_stage(0);
    norm.set_stage(0);
    dropout.set_stage(0);
    middle.set_stage(stages / 2);
    last.set_stage(stages - 1);
  }
  nn::Embedding& words = child<nn::Embedding>("words", 11, 8);
  nn::BatchNorm1d& norm = child<nn::BatchNorm1d>("norm", 8);
  nn::Dropout& dropout = child<nn::Dropout>("dropout", 0.9);
  nn::Dense& middle = child<nn::Dense>("middle", 8, 8);
  nn::Dense& last = child<nn::Dense>("last", 8, 8);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    const ir::Value x = last(ops::tanh(middle(dropout(norm(words(ids))))));
    return ops::matmul(x, words.table().in(graph()), /*transpose_a=*/false, /*transpose_b=*/true);
  }
};

struct Words {
  Tensor ids{{DType::kI32, {kRows}}};
  Tensor labels{{DType::kI32, {kRows}}};
  explicit Words(int64_t step) {
    for (int64_t row = 0; row < kRows; ++row) {
      ids.values<int32_t>()[static_cast<size_t>(row)] = static_cast<int32_t>((7 * row + step) % 11);
      labels.values<int32_t>()[static_cast<size_t>(row)] = static_cast<int32_t>((3 * row + step) % 11);
    }
  }
};

double train_words(Model& model, int64_t step) {
  const Words batch(step);
  return model.train_step({batch.ids.view(), batch.labels.view()}, kRows);
}

TEST_F(PipelineTraining, KeepsAParameterOfTwoStagesEqualToTheBit) {
  for (const int ranks_per_stage : {1, 2}) {
    std::map<int, std::vector<std::byte>> tables;
    std::mutex mutex;
    run_ranks(3 * ranks_per_stage, [&](cluster::Context& context) {
      Tied network(3);
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.02});
      Model model(context, network, &loss, &optimizer, pipeline_of(3));
      const std::string table = network.words.table().full_name();
      for (int64_t step = 0; step < 5; ++step) {
        train_words(model, step);
        const auto bits = bits_of(model);
        const std::lock_guard lock(mutex);
        tables[context.rank()] = bits.at(table);
        // Once: the optimizer's states are on the first stage.
        EXPECT_EQ(bits.at("moment1." + table).empty(), context.rank() >= ranks_per_stage);
      }
    });
    EXPECT_FALSE(tables[0].empty());
    EXPECT_EQ(tables[2 * ranks_per_stage], tables[0]);
    EXPECT_EQ(tables[3 * ranks_per_stage - 1], tables[0]);
    EXPECT_TRUE(tables[ranks_per_stage].empty());
  }
}

TEST_F(PipelineTraining, LoadsASharedParameterWithAnotherNumberOfStages) {
  std::mutex mutex;
  std::vector<double> losses;
  const auto run = [&](int stages, int64_t first, int64_t steps, const std::string& load, const std::string& save) {
    losses.clear();
    run_ranks(stages, [&](cluster::Context& context) {
      Tied network(stages);
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.02});
      Model model(context, network, &loss, &optimizer, pipeline_of(stages));
      if (!load.empty()) model.load_checkpoint(load, {.accept_other_jobs = true});
      for (int64_t step = first; step < first + steps; ++step) {
        const double value = train_words(model, step);
        const std::lock_guard lock(mutex);
        if (context.rank() == 0) losses.push_back(value);
      }
      if (!save.empty()) model.save_checkpoint(save, {.integrated = false});
    });
    return losses;
  };
  const auto whole = run(2, 0, 6, "", "");
  run(2, 0, 3, "", in("tied/two"));
  const auto rest = run(3, 3, 3, in("tied/two.ckpt"), "");
  EXPECT_LT(relative_deviation(rest, {whole.begin() + 3, whole.end()}), 1e-5);
}

// A scale so large that the gradient of the table overflows on the last stage: the step changes nothing anywhere but
// the scale.
TEST_F(PipelineTraining, LeavesAllBitsWhereAStepIsSkipped) {
  run_ranks(3, [](cluster::Context& context) {
    Tied network(3);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    auto options = pipeline_of(3);
    options.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 4, .scale_window = 2});
    Model model(context, network, &loss, &optimizer, options);
    train_words(model, 0);
    EXPECT_FALSE(model.was_skipped());
    model.set_value(nn::kLossScale, Tensor::full({DType::kF32, {}}, 3e38));
    model.set_value("last.bias", Tensor::full({DType::kF32, {8}}, 100));
    auto before = bits_of(model);
    train_words(model, 1);
    EXPECT_TRUE(model.was_skipped());
    auto after = bits_of(model);
    EXPECT_NE(after.at(nn::kLossScale), before.at(nn::kLossScale));
    for (auto* all : {&before, &after}) {
      all->erase(nn::kLossScale);
      all->erase("loss_scale_clean_steps");
    }
    for (const auto& [name, bits] : before)
      EXPECT_TRUE(after.at(name) == bits) << name << " of rank " << context.rank();
    model.set_value(nn::kLossScale, Tensor::full({DType::kF32, {}}, 4));
    EXPECT_TRUE(std::isfinite(train_words(model, 1)));
    EXPECT_FALSE(model.was_skipped());
    const std::string table = network.words.table().full_name();
    if (!before.at(table).empty()) {
      EXPECT_NE(bits_of(model).at(table), before.at(table));
    }
  });
}

// The program of each stage as its rank has it.
TEST_F(PipelineTraining, EachRankHasTheProgramOfItsStage) {
  std::map<int, std::string> texts;
  std::mutex mutex;
  run_ranks(2, [&](cluster::Context& context) {
    Network network(2);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    auto options = pipeline_of(2);
    options.pipeline.micro_batches = 3;
    Model model(context, network, &loss, &optimizer, options);
    model.train(1, samples(kRows));
    auto* step = dynamic_cast<session::PipelinedStep*>(model.train_executable());
    ASSERT_NE(step, nullptr);
    EXPECT_THROW(step->executor(), InvalidArgument);  // there are several
    const std::lock_guard lock(mutex);
    texts[context.rank()] = print(step->program());
  });
  EXPECT_EQ(texts[0], R"(program of stage 0 of 2: 3 micro-batches in 3 slots
  run forward m0 slot 0
  send forward m0 slot 0 to stage 1
  receive backward m0 slot 0 from stage 1
  run forward m1 slot 1
  send forward m1 slot 1 to stage 1
  receive backward m1 slot 1 from stage 1
  await backward m0 slot 0 from stage 1
  run backward m0 slot 0
  run forward m2 slot 2
  send forward m2 slot 2 to stage 1
  receive backward m2 slot 2 from stage 1
  await backward m1 slot 1 from stage 1
  run backward m1 slot 1
  await backward m2 slot 2 from stage 1
  run backward m2 slot 2
  run update
)");
  EXPECT_EQ(texts[1], R"(program of stage 1 of 2: 3 micro-batches in 2 slots
  receive forward m0 slot 0 from stage 0
  receive forward m1 slot 1 from stage 0
  await forward m0 slot 0 from stage 0
  run forward m0 slot 0
  run backward m0 slot 0
  send backward m0 slot 0 to stage 0
  receive forward m2 slot 0 from stage 0
  await forward m1 slot 1 from stage 0
  run forward m1 slot 1
  run backward m1 slot 1
  send backward m1 slot 1 to stage 0
  await forward m2 slot 0 from stage 0
  run forward m2 slot 0
  run backward m2 slot 0
  send backward m2 slot 0 to stage 0
  run update
)");
}

// Whether a training on so many stages, a rank each, leaves measured kernels in its cache.
bool keeps_measured_kernels(int stages) {
  const auto directory = std::filesystem::path(testing::TempDir()) / fmt::format("pipeline_kernels_{}", getpid());
  std::filesystem::remove_all(directory);
  run_ranks(stages, [&](cluster::Context& context) {
    Network network(stages);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    auto options = stages == 1 ? ModelOptions{} : pipeline_of(stages);
    options.session.reference_kernels = false;
    options.session.kernel_choice = session::KernelChoice::kMeasured;
    options.session.kernel_cache = directory.string();
    Model(context, network, &loss, &optimizer, options).train(1, samples(kRows));
  });
  const bool keeps = std::filesystem::exists(directory) && !std::filesystem::is_empty(directory);
  std::filesystem::remove_all(directory);
  return keeps;
}

// One rank measures nothing where every operator has one kernel, as in a build without oneDNN.
TEST_F(PipelineTraining, KeepsMeasuredKernelsForLaterTrainingsAsOneRankDoes) {
  EXPECT_EQ(keeps_measured_kernels(2), keeps_measured_kernels(1));
}

std::string refusal(int ranks, const ModelOptions& options, int64_t rows = kRows, int stages_of_network = 2) {
  try {
    run_ranks(ranks, [&](cluster::Context& context) {
      Network network(stages_of_network);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      Model model(context, network, &loss, &optimizer, options);
      const Tensor x = Tensor::full({DType::kF32, {rows, 6}}, 1);
      const Tensor y = Tensor::full({DType::kF32, {rows, 4}}, 1);
      model.train_step({x.view(), y.view()}, rows);
    });
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(PipelineTraining, IsRefusedWhereStagesRanksAndRowsDoNotFit) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(3, pipeline_of(2)),
              HasSubstr("3 ranks cannot be dealt to 2 stages of equally many: use a number of stages that divides 3"));
  EXPECT_THAT(refusal(2, pipeline_of(0)),
              HasSubstr("pipeline_parallel needs a number of stages, got pipeline.stages = 0"));
  auto searched = pipeline_of(2);
  searched.pipeline.stages = StageCount::automatic();
  EXPECT_THAT(refusal(2, searched), HasSubstr("how many there are is found by auto_parallel"));
  searched.parallel_mode = ParallelMode::kAutomatic;
  searched.pipeline.ranks = {1, 1};
  EXPECT_THAT(refusal(2, searched), HasSubstr("pipeline.ranks = [1, 1] says how many stages there are"));
  EXPECT_THAT(
      refusal(2, pipeline_of(2), 10),
      HasSubstr("a batch of 10 rows cannot be cut into 4 micro-batches of equally many: batches of a multiple of "
                "4 rows can (drop_remainder leaves out a last one that is smaller)"));
  auto options = pipeline_of(2);
  options.pipeline.micro_batches = 1;
  EXPECT_THAT(refusal(2, options),
              HasSubstr("a pipeline of 2 stages needs as many micro-batches at least, got 1: cut the "
                        "batch into more, or use fewer stages"));
  options = pipeline_of(2);
  options.pipeline.schedule = "2f2b";
  EXPECT_THAT(refusal(2, options), HasSubstr("2f2b"));
  options = pipeline_of(2);
  options.gradient_accumulation_steps = 2;
  EXPECT_THAT(refusal(2, options), HasSubstr("set pipeline.micro_batches instead of gradient_accumulation_steps"));
  EXPECT_THAT(refusal(2, pipeline_of(2), kRows, 3),
              HasSubstr("cell \"down\" is on stage 2, but the stages are 0 to 1"));
  EXPECT_THAT(refusal(4, pipeline_of(4), kRows, 3), HasSubstr("stage 3 of 4 has no parameters"));
  EXPECT_THAT(refusal(2, pipeline_of(2), kRows, 0), HasSubstr("because no cell names its stage"));
}

}  // namespace
}  // namespace tessera::train
