// Training in a pipeline that goes over its stages more than once, through Model. That the numbers are those of one
// device for any schedule is shown in tests/equivalence/pipelines_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/convert/merge_strategies.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/pipelined_step.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;

constexpr int64_t kMicroBatches = 4;
constexpr int64_t kRows = 16;

// Stages and segments of four parts of a network, one after the other; none: one device.
using Places = std::vector<std::pair<int, int>>;
const Places kNone = {};
const Places kOnce = {{0, 0}, {0, 0}, {1, 0}, {1, 0}};
const Places kThreeStages = {{0, 0}, {1, 0}, {1, 0}, {2, 0}};
const Places kTwice = {{0, 0}, {1, 0}, {0, 1}, {1, 1}};
const Places kThereAndBack = {{0, 0}, {1, 0}, {1, 1}, {0, 1}};
const Places kOnlyTheFirstTwice = {{0, 0}, {0, 0}, {1, 0}, {0, 1}};

// The table of the embedding is the output projection; statistics are moved and noise is drawn in several parts. What
// is normalised has no bias before that: its gradient would be rounding only.
struct Network : nn::Cell {
  explicit Network(const Places& places) {
    if (places.empty()) return;
    const auto put = [&](nn::Cell& cell, size_t part) { cell.set_stage(places[part].first, places[part].second); };
    put(words, 0);
    put(noise, 0);
    put(up, 1);
    put(norm, 1);
    put(more_noise, 2);
    put(middle, 2);
    put(late_norm, 3);
    put(last, 3);
    put(last_noise, 3);
  }
  nn::Embedding& words = child<nn::Embedding>("words", 11, 8);
  nn::Dropout& noise = child<nn::Dropout>("noise", 0.8);
  nn::Dense& up = child<nn::Dense>("up", 8, 8, nn::DenseOptions{.has_bias = false});
  nn::BatchNorm1d& norm = child<nn::BatchNorm1d>("norm", 8);
  nn::Dropout& more_noise = child<nn::Dropout>("more_noise", 0.8);
  nn::Dense& middle = child<nn::Dense>("middle", 8, 8, nn::DenseOptions{.has_bias = false});
  nn::BatchNorm1d& late_norm = child<nn::BatchNorm1d>("late_norm", 8);
  nn::Dense& last = child<nn::Dense>("last", 8, 8);
  nn::Dropout& last_noise = child<nn::Dropout>("last_noise", 0.8);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    ir::Value x = norm(ops::tanh(up(noise(words(ids)))));
    x = ops::tanh(middle(more_noise(x)));
    x = last_noise(last(late_norm(x)));
    return ops::matmul(x, words.table().in(graph()), /*transpose_a=*/false, /*transpose_b=*/true);
  }
};

ModelOptions pipeline_of(int stages, const std::string& schedule) {
  return {.parallel_mode = ParallelMode::kPipeline,
          .pipeline = {.stages = stages,
                       .micro_batches = kMicroBatches,
                       .schedule = schedule,
                       .profile = compiler::example_profile()},
          .seed = 7,
          .metrics = {mean_loss()}};
}

struct Words {
  Tensor ids{{DType::kI32, {kRows}}};
  Tensor labels{{DType::kI32, {kRows}}};
  explicit Words(int64_t step) {
    for (int64_t row = 0; row < kRows; ++row) {
      ids.values<int32_t>()[static_cast<size_t>(row)] = static_cast<int32_t>((7 * row + step) % 11);
      labels.values<int32_t>()[static_cast<size_t>(row)] = static_cast<int32_t>((3 * row + step) % 11);
    }
  }
  std::vector<TensorView> rows(int64_t begin, int64_t count) const {
    const std::vector<mesh::Range> slice = {{begin, count}};
    return {mesh::piece_of(ids.view(), slice), mesh::piece_of(labels.view(), slice)};
  }
};

double train_words(Model& model, int64_t step) { return model.train_step(Words(step).rows(0, kRows), kRows); }

struct Outcome {
  std::vector<double> losses;
  std::vector<double> predicted;
  std::map<std::string, std::vector<double>> values;
};

struct Run {
  Places places;
  ModelOptions options;
  int ranks = 2;
  std::string load = {};
  int64_t first_step = 0;
  int64_t steps = 4;
  std::string save = {};
};

Outcome train(const Run& run) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(run.ranks, [&](cluster::Context& context) {
    Network network(run.places);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    Model model(context, network, &loss, &optimizer, run.options);
    if (!run.load.empty()) model.load_checkpoint(run.load, {.accept_other_jobs = true});
    std::vector<double> losses;
    const int64_t pieces = run.options.gradient_accumulation_steps;
    for (int64_t step = run.first_step; step < run.first_step + run.steps; ++step) {
      const Words batch(step);
      double value = 0;
      for (int64_t k = 0; k < pieces; ++k) {
        value = model.train_step(batch.rows(k * kRows / pieces, kRows / pieces), kRows / pieces);
      }
      losses.push_back(value);
    }
    if (!run.save.empty()) model.save_checkpoint(run.save, {.integrated = false});
    const auto predicted = model.predict({Words(0).ids}).to_doubles();
    std::map<std::string, std::vector<double>> values;
    for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) outcome = {losses, predicted, values};
  });
  return outcome;
}

Outcome train_alone(int64_t first_step = 0, int64_t steps = 4) {
  return train({.places = kNone,
                .options = {.gradient_accumulation_steps = kMicroBatches, .seed = 7},
                .ranks = 1,
                .first_step = first_step,
                .steps = steps});
}

void expect_alike(const Outcome& one, const Outcome& many) {
  EXPECT_LT(relative_deviation(one.losses, many.losses), 1e-5);
  EXPECT_LT(relative_deviation(one.predicted, many.predicted), 1e-4);
  for (const auto& [name, value] : many.values) {
    EXPECT_LT(relative_deviation(one.values.at(name), value), 1e-3) << name;
  }
}

class Segments : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-segments-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(Segments, TrainAndPredictAsOneDeviceWithDropoutAndMovingStatistics) {
  const auto one = train_alone();
  for (const int ranks : {2, 4}) {
    expect_alike(one, train({.places = kTwice, .options = pipeline_of(2, "interleaved_1f1b"), .ranks = ranks}));
    expect_alike(one, train({.places = kThereAndBack, .options = pipeline_of(2, "zb_v"), .ranks = ranks}));
    expect_alike(one, train({.places = kOnlyTheFirstTwice, .options = pipeline_of(2, "auto"), .ranks = ranks}));
  }
}

TEST_F(Segments, AutomaticParallelismCutsTheNetworkIntoThem) {
  const auto one = train_alone();
  for (const char* schedule : {"interleaved_1f1b", "zb_v", "auto"}) {
    auto options = pipeline_of(2, schedule);
    options.parallel_mode = ParallelMode::kAutomatic;
    options.pipeline.segments = std::string(schedule) == "auto" ? 2 : 0;
    std::mutex mutex;
    run_ranks(2, [&](cluster::Context& context) {
      Network network(kNone);
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.02});
      Model model(context, network, &loss, &optimizer, options);
      std::vector<double> losses;
      for (int64_t step = 0; step < 4; ++step) losses.push_back(train_words(model, step));
      const auto* made = dynamic_cast<session::PipelinedStep*>(model.train_executable());
      ASSERT_NE(made, nullptr);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(made->program().slots.size(), 2U) << schedule;
      EXPECT_LT(relative_deviation(one.losses, losses), 1e-5) << schedule;
    });
  }
}

TEST_F(Segments, ACheckpointIsLoadedByAnyNumberOfSegmentsAndStages) {
  const auto interleaved = pipeline_of(2, "interleaved_1f1b");
  const auto v_shaped = pipeline_of(2, "zb_v");
  auto rest = train_alone(0, 6);
  rest.losses.erase(rest.losses.begin(), rest.losses.begin() + 3);
  const auto go_on = [&](const Places& places, const ModelOptions& options, int ranks, const std::string& from) {
    return train({.places = places, .options = options, .ranks = ranks, .load = in(from), .first_step = 3, .steps = 3});
  };
  train({.places = kTwice, .options = interleaved, .steps = 3, .save = in("twice/saved")});
  expect_alike(rest, go_on(kOnce, pipeline_of(2, "1f1b"), 2, "twice/saved.ckpt"));
  expect_alike(rest, go_on(kThereAndBack, v_shaped, 4, "twice/saved.ckpt"));
  expect_alike(rest, go_on(kThreeStages, pipeline_of(3, "1f1b"), 3, "twice/saved.ckpt"));
  train({.places = kOnce, .options = pipeline_of(2, "1f1b"), .steps = 3, .save = in("once/saved")});
  expect_alike(rest, go_on(kTwice, interleaved, 2, "once/saved.ckpt"));
  train({.places = kThereAndBack, .options = v_shaped, .ranks = 4, .steps = 3, .save = in("back/saved")});
  expect_alike(rest, go_on(kNone, {.gradient_accumulation_steps = kMicroBatches, .seed = 7}, 1, "back/saved.ckpt"));
}

// What a stage's file says of both of its segments.
TEST_F(Segments, AStagesStrategyFileHasAllOfThem) {
  run_ranks(4, [&](cluster::Context& context) {
    Network network(kTwice);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    auto options = pipeline_of(2, "interleaved_1f1b");
    options.strategy_ckpt_save_file = in(fmt::format("strategy{}.ckpt", context.rank()));
    Model model(context, network, &loss, &optimizer, options);
    train_words(model, 0);
  });
  std::map<std::string, std::set<std::string>> names;
  for (const char* file : {"strategy0.ckpt", "strategy2.ckpt"}) {
    const auto strategy = checkpoint::read_strategy_file(FileSystem::local(), in(file));
    for (const auto& layout : strategy.layouts) names[file].insert(layout.name);
  }
  EXPECT_TRUE(names["strategy0.ckpt"].contains("words.embedding_table") &&
              names["strategy0.ckpt"].contains("middle.weight"));
  EXPECT_TRUE(names["strategy2.ckpt"].contains("up.weight") && names["strategy2.ckpt"].contains("last.weight"));
  EXPECT_FALSE(names["strategy0.ckpt"].contains("up.weight"));
  checkpoint::merge_pipeline_strategys(FileSystem::local(), in(""), in("merged.ckpt"));
  size_t merged = checkpoint::read_strategy_file(FileSystem::local(), in("merged.ckpt")).layouts.size();
  EXPECT_EQ(merged, names["strategy0.ckpt"].size() + names["strategy2.ckpt"].size());
}

// A scale so large that gradients overflow: the step changes nothing anywhere but the scale.
TEST_F(Segments, ASkippedStepLeavesAllBits) {
  for (const auto& [places, schedule] : {std::pair{kTwice, "interleaved_1f1b"}, std::pair{kThereAndBack, "zb_v"}}) {
    run_ranks(2, [&, &places = places, &schedule = schedule](cluster::Context& context) {
      Network network(places);
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.02});
      auto options = pipeline_of(2, schedule);
      options.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 4, .scale_window = 2});
      Model model(context, network, &loss, &optimizer, options);
      const auto bits = [&] {
        std::map<std::string, std::vector<double>> all;
        for (const auto& name : model.session().names()) {
          if (name.starts_with("loss_scale")) continue;
          all[name] = model.session().values().read(name).to_doubles();
        }
        return all;
      };
      train_words(model, 0);
      EXPECT_FALSE(model.was_skipped());
      model.set_value(nn::kLossScale, Tensor::full({DType::kF32, {}}, 3e38));
      model.set_value("last.bias", Tensor::full({DType::kF32, {8}}, 100));
      const auto before = bits();
      train_words(model, 1);
      EXPECT_TRUE(model.was_skipped());
      EXPECT_EQ(bits(), before);
      model.set_value(nn::kLossScale, Tensor::full({DType::kF32, {}}, 4));
      EXPECT_TRUE(std::isfinite(train_words(model, 1)));
      EXPECT_FALSE(model.was_skipped());
      EXPECT_NE(bits(), before);
    });
  }
}

// Without a lane where both ends are on one stage.
TEST_F(Segments, AChunkHandsOverToTheNextOneOfItsStage) {
  std::map<int, std::string> texts;
  std::mutex mutex;
  run_ranks(2, [&](cluster::Context& context) {
    Network network(kThereAndBack);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    auto options = pipeline_of(2, "gpipe");
    options.pipeline.micro_batches = 2;
    Model model(context, network, &loss, &optimizer, options);
    train_words(model, 0);
    const std::lock_guard lock(mutex);
    texts[context.rank()] = print(dynamic_cast<session::PipelinedStep&>(*model.train_executable()).program());
  });
  EXPECT_EQ(texts[1], R"(program of stage 1 of 2: 2 micro-batches in 2 slots, c2 in 2 slots
  receive forward m0 slot 0 from stage 0
  receive forward m1 slot 1 from stage 0
  await forward m0 slot 0 from stage 0
  run forward m0 slot 0
  pass forward m0 slot 0 to stage 1 c2
  run forward c2 m0 slot 0
  send forward c2 m0 slot 0 to stage 0 c3
  receive backward c2 m0 slot 0 from stage 0 c3
  await forward m1 slot 1 from stage 0
  run forward m1 slot 1
  pass forward m1 slot 1 to stage 1 c2
  run forward c2 m1 slot 1
  send forward c2 m1 slot 1 to stage 0 c3
  receive backward c2 m1 slot 1 from stage 0 c3
  await backward c2 m0 slot 0 from stage 0 c3
  run backward c2 m0 slot 0
  pass backward c2 m0 slot 0 to stage 1
  run backward m0 slot 0
  send backward m0 slot 0 to stage 0
  await backward c2 m1 slot 1 from stage 0 c3
  run backward c2 m1 slot 1
  pass backward c2 m1 slot 1 to stage 1
  run backward m1 slot 1
  send backward m1 slot 1 to stage 0
  run update
)");
}

std::string refusal(const Places& places, const ModelOptions& options) {
  try {
    train({.places = places, .options = options, .steps = 1});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(Segments, AreRefusedWhereTheScheduleHasOthers) {
  EXPECT_THAT(
      refusal(kTwice, pipeline_of(2, "1f1b")),
      HasSubstr("\"1f1b\": the chunks must go once over the stages, 0, 1, ..., they go 0, 1, 0, 1; place them so "
                "or take another schedule"));
  EXPECT_THAT(refusal(kOnce, pipeline_of(2, "zb_v")),
              HasSubstr("they go 0, 1; place them so or take another schedule (cells name the stage and the segment of "
                        "their chunk: set_stage(stage, segment))"));
  EXPECT_THAT(refusal(kTwice, pipeline_of(2, "zb_v")),
              HasSubstr("there and back, 0, 1, ..., 1, 0, they go 0, 1, 0, 1"));
  auto options = pipeline_of(2, "interleaved_1f1b");
  options.pipeline.micro_batches = 4;
  EXPECT_EQ(refusal(kTwice, options), "nothing was thrown");
  options = pipeline_of(2, "1f1b");
  options.pipeline.segments = 2;
  EXPECT_THAT(refusal(kOnce, options), HasSubstr("cells name their segments, set_stage(stage, segment)"));
  options.parallel_mode = ParallelMode::kAutomatic;
  EXPECT_THAT(refusal(kNone, options), HasSubstr("\"1f1b\": the chunks must go once over the stages"));
  options.pipeline.schedule = "zb_v";
  options.pipeline.segments = 3;
  EXPECT_THAT(refusal(kNone, options), HasSubstr("zb_v goes over the stages there and back, in 2 segments, not in 3"));
  EXPECT_THAT(refusal({{0, 0}, {1, 0}, {0, 2}, {1, 2}}, pipeline_of(2, "auto")),
              HasSubstr("no cell is in segment 1 of the pipeline, but some are in segment 2"));
  EXPECT_THAT(refusal({{0, 0}, {1, 1}, {1, 0}, {0, 1}}, pipeline_of(2, "auto")),
              HasSubstr("on stage 1, segment 0 and reads what"));
}

}  // namespace
}  // namespace tessera::train
