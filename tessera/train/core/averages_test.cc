// Averages of parameters: against a plain loop, on several ranks, through checkpoints, and in the parameters' places.
#include "tessera/train/core/averages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/nn/tuning/exponential_moving_average.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kBatchRows = 12;

struct TwoLayers : nn::Cell {
  explicit TwoLayers(DType dtype = DType::kF64)
      : up(child<nn::Dense>("up", 6, 10)), down(child<nn::Dense>("down", 10, 3)) {
    for (nn::Parameter* p : parameters()) p->type.dtype = dtype;
  }
  nn::Dense& up;
  nn::Dense& down;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
};

Tensor random_rows(DType dtype, int64_t columns, uint64_t stream, int64_t step) {
  Tensor values(DType::kF64, {kBatchRows, columns});
  const auto at = values.values<double>();
  for (size_t i = 0; i < at.size(); ++i) {
    at[i] = random_normal({.seed = 5, .stream = stream, .step = static_cast<uint64_t>(step)}, i);
  }
  return values.cast(dtype);
}

// This rank's rows.
double train_on(Model& model, DType dtype, int64_t step) {
  auto& context = model.context();
  const auto [offset, size] = mesh::balanced_part(kBatchRows, context.size(), context.rank());
  const Tensor x = random_rows(dtype, 6, 1, step);
  const Tensor y = random_rows(dtype, 3, 2, step);
  return model.train_step(
      {mesh::piece_of(x.view(), {{offset, size}, {0, 6}}), mesh::piece_of(y.view(), {{offset, size}, {0, 3}})},
      kBatchRows);
}

using Doubles = std::map<std::string, std::vector<double>>;

Doubles values_of(Model& model) {
  Doubles values;
  for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
  return values;
}

struct Trained {
  explicit Trained(cluster::Context& context, const ModelOptions& options = {}, DType dtype = DType::kF64,
                   const nn::MovingAverageOptions& average = {.decay = 0.75})
      : network(dtype), optimizer(adam, average), model(context, network, &loss, &optimizer, options), dtype(dtype) {}
  double step(int64_t number) { return train_on(model, dtype, number); }

  TwoLayers network;
  nn::MSELoss loss;
  nn::Adam adam{{.learning_rate = 0.01}};
  nn::ExponentialMovingAverage optimizer;
  Model model;
  DType dtype;
};

// Trains, and compares the averages with those of a loop after each step. Returns the values of rank 0 at the end.
Doubles compare_with_loop(int num_ranks, const ModelOptions& options, DType dtype, double tolerance) {
  Doubles last;
  run_ranks(num_ranks, [&](cluster::Context& context) {
    Trained trained(context, options, dtype);
    Doubles expected;
    for (int64_t step = 0; step < 5; ++step) {
      trained.step(step);
      const auto values = values_of(trained.model);
      for (const auto& name : trained.model.parameter_names()) {
        const auto& now = values.at(name);
        auto& average = expected[name];
        if (step == 0) average = now;
        for (size_t i = 0; i < now.size(); ++i) average[i] += 0.25 * (now[i] - average[i]);
        EXPECT_THAT(values.at("ema." + name), testing::Pointwise(testing::DoubleNear(tolerance), average)) << name;
      }
      EXPECT_EQ(values.at("ema_step"), std::vector<double>{static_cast<double>(step + 1)});
      if (context.rank() == 0) last = values;
    }
    session::Session& session = trained.model.session();
    EXPECT_EQ(session.is_split("ema.up.weight"), options.parallel_optimizer);
    EXPECT_EQ(session.values().type("ema.up.weight").shape, session.values().type("up.weight").shape);
  });
  return last;
}

TEST(ExponentialMovingAverage, EqualsALoopOnOneRankAndOnFour) {
  const auto alone = compare_with_loop(1, {}, DType::kF64, 1e-14);
  const auto together = compare_with_loop(4, {.parallel_mode = ParallelMode::kDataParallel}, DType::kF64, 1e-14);
  for (const auto& [name, values] : alone) {
    EXPECT_THAT(together.at(name), testing::Pointwise(testing::DoubleNear(1e-11), values)) << name;
  }
}

TEST(ExponentialMovingAverage, LiesInTheShardsOfItsParameter) {
  const ModelOptions options{
      .parallel_mode = ParallelMode::kDataParallel, .parallel_optimizer = true, .parallel_optimizer_threshold = 0};
  const auto alone = compare_with_loop(1, {}, DType::kF64, 1e-14);
  const auto together = compare_with_loop(4, options, DType::kF64, 1e-14);
  for (const auto& [name, values] : alone) {
    EXPECT_THAT(together.at(name), testing::Pointwise(testing::DoubleNear(1e-11), values)) << name;
  }
}

TEST(ExponentialMovingAverage, IsFloat32BesideABfloat16Network) {
  compare_with_loop(2, {.parallel_mode = ParallelMode::kDataParallel, .precision = DType::kBF16}, DType::kF32, 1e-6);
}

TEST(ExponentialMovingAverage, OfHalfParametersIsFloat32) {
  nn::Parameter half{.name = "weight", .type = {DType::kBF16, {4}}};
  nn::SGD sgd;
  const nn::ExponentialMovingAverage optimizer(sgd);
  const std::vector<nn::Parameter*> parameters{&half};
  const auto states = optimizer.states(parameters);
  EXPECT_EQ(states.back().full_name(), "ema.weight");
  EXPECT_EQ(states.back().type, (Type{DType::kF32, {4}}));
  EXPECT_EQ(optimizer.average_of(half), "ema.weight");
  EXPECT_EQ(optimizer.name(), sgd.name());
}

// y = w x, with w = 2 at first.
struct Slope : nn::Cell {
  Slope() { weight.data = Tensor::full({DType::kF64, {1, 1}}, 2); }
  nn::Parameter& weight = parameter("weight", {DType::kF64, {1, 1}}, nn::Initializer());
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return ops::matmul(x, weight); }
};

// The weight and its average after each step of halving the weight: the loss is w^2 / 2 of x = 1, y = 0 times 1/2.
std::vector<std::pair<double, double>> halve(const nn::MovingAverageOptions& options, int steps) {
  const auto context = cluster::single_context(1);
  Slope network;
  nn::MSELoss loss;
  nn::SGD sgd({.learning_rate = 0.25});  // the gradient of w^2 is 2 w
  nn::ExponentialMovingAverage optimizer(sgd, options);
  Model model(*context, network, &loss, &optimizer);
  const Tensor x = Tensor::full({DType::kF64, {1, 1}}, 1);
  const Tensor y = Tensor::full({DType::kF64, {1, 1}}, 0);
  std::vector<std::pair<double, double>> values;
  for (int step = 0; step < steps; ++step) {
    model.train_step({x.view(), y.view()}, 1);
    values.emplace_back(model.value("weight").item(), model.value("ema.weight").item());
  }
  return values;
}

TEST(ExponentialMovingAverage, CopiesUpToItsFirstStep) {
  using Pairs = std::vector<std::pair<double, double>>;
  EXPECT_EQ(halve({.decay = 0.5}, 3), (Pairs{{1, 1}, {0.5, 0.75}, {0.25, 0.5}}));
  EXPECT_EQ(halve({.decay = 0.5, .start_step = 1}, 3), (Pairs{{1, 1}, {0.5, 0.5}, {0.25, 0.375}}));
  EXPECT_EQ(halve({.decay = 0}, 2), (Pairs{{1, 1}, {0.5, 0.5}}));
  EXPECT_EQ(halve({.decay = 1}, 2), (Pairs{{1, 1}, {0.5, 1}}));
}

TEST(ExponentialMovingAverage, WarmsUp) {
  const auto values = halve({.decay = 0.24, .warms_up = true}, 4);
  EXPECT_EQ(values[0].second, 1);
  const double second = 0.5 + 2.0 / 11 * (1 - 0.5);
  EXPECT_NEAR(values[1].second, second, 1e-15);
  const double third = 0.25 + 0.24 * (second - 0.25);  // 3/12 is more than 0.24
  EXPECT_NEAR(values[2].second, third, 1e-15);
  EXPECT_NEAR(values[3].second, 0.125 + 0.24 * (third - 0.125), 1e-15);
}

TEST(ExponentialMovingAverage, OverwritesTheParametersWhenItIsTold) {
  using Pairs = std::vector<std::pair<double, double>>;
  EXPECT_EQ(halve({.decay = 0.5, .overwrite_steps = 2}, 3), (Pairs{{1, 1}, {0.75, 0.75}, {0.375, 0.5625}}));
}

TEST(ExponentialMovingAverage, RefusesWhatIsNoDecay) {
  nn::SGD sgd;
  const auto make = [&](const nn::MovingAverageOptions& options) {
    return [&sgd, options] { nn::ExponentialMovingAverage(sgd, options); };
  };
  EXPECT_THAT(make({.decay = 1.5}), ThrowsMessage<InvalidArgument>(HasSubstr("decay")));
  EXPECT_THAT(make({.decay = std::numeric_limits<double>::quiet_NaN()}),
              ThrowsMessage<InvalidArgument>(HasSubstr("decay")));
  EXPECT_THAT(make({.start_step = -1}), ThrowsMessage<InvalidArgument>(HasSubstr("start_step must be at least 0")));
  EXPECT_THAT(make({.overwrite_steps = -2}), ThrowsMessage<InvalidArgument>(HasSubstr("overwrite_steps")));
}

TEST(ExponentialMovingAverage, IsLeftOutByASkippedStep) {
  const auto context = cluster::single_context(1);
  Trained trained(*context, {.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024})}, DType::kF32);
  trained.step(0);
  trained.step(1);
  const auto before = values_of(trained.model);
  const Tensor x = Tensor::full({DType::kF32, {kBatchRows, 6}}, std::numeric_limits<double>::infinity());
  const Tensor y = random_rows(DType::kF32, 3, 2, 2);
  trained.model.train_step({x.view(), y.view()}, kBatchRows);
  EXPECT_TRUE(trained.model.was_skipped());
  const auto after = values_of(trained.model);
  for (const auto& [name, values] : before) {
    if (!name.starts_with("ema")) continue;
    EXPECT_EQ(after.at(name), values) << name;
  }
}

class AveragesOnRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-averages-{}-{}", GetParam(), ::getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  ModelOptions options() const {
    if (GetParam() == 1) return {};
    return {
        .parallel_mode = ParallelMode::kDataParallel, .parallel_optimizer = true, .parallel_optimizer_threshold = 0};
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_P(AveragesOnRanks, GoOnFromACheckpointToTheBit) {
  run_ranks(GetParam(), [&](cluster::Context& context) {
    Trained whole(context, options());
    for (int64_t step = 0; step < 3; ++step) whole.step(step);
    whole.model.save_checkpoint(path("middle.ckpt"));
    for (int64_t step = 3; step < 6; ++step) whole.step(step);
    Trained resumed(context, options());
    resumed.model.load_checkpoint(path("middle.ckpt"));
    for (int64_t step = 3; step < 6; ++step) resumed.step(step);
    EXPECT_EQ(values_of(resumed.model), values_of(whole.model));
  });
}

TEST_P(AveragesOnRanks, AreEvaluatedAndTakeNothingFromTheTraining) {
  run_ranks(GetParam(), [&](cluster::Context& context) {
    Trained evaluated(context, options());
    Trained undisturbed(context, options());
    const Tensor x = random_rows(DType::kF64, 6, 9, 0);
    for (int64_t step = 0; step < 5; ++step) {
      evaluated.step(step);
      undisturbed.step(step);
      const auto before = values_of(evaluated.model);
      {
        const AveragedParameters averaged(evaluated.model);
        for (const auto& name : evaluated.model.parameter_names()) {
          EXPECT_EQ(evaluated.model.value(name).to_doubles(), before.at("ema." + name)) << name;
        }
        const auto of_averages = evaluated.model.predict({x}).to_doubles();
        EXPECT_EQ(of_averages == undisturbed.model.predict({x}).to_doubles(), step == 0);
        EXPECT_THAT([&] { evaluated.step(step); },
                    ThrowsMessage<InvalidArgument>(HasSubstr("train_step: the averages")));
        EXPECT_THAT([&] { evaluated.model.save_checkpoint(path("no.ckpt")); },
                    ThrowsMessage<InvalidArgument>(HasSubstr("save_checkpoint: the averages are in the places")));
        EXPECT_THAT([&] { evaluated.model.put_averages_in_place(); },
                    ThrowsMessage<InvalidArgument>(HasSubstr("averages:")));
      }
      EXPECT_EQ(values_of(evaluated.model), before);
    }
    EXPECT_EQ(values_of(evaluated.model), values_of(undisturbed.model));
  });
}

TEST_P(AveragesOnRanks, AreSavedAloneAsParameters) {
  run_ranks(GetParam(), [&](cluster::Context& context) {
    Trained trained(context, options());
    for (int64_t step = 0; step < 3; ++step) trained.step(step);
    const auto values = values_of(trained.model);
    for (const bool integrated : {true, false}) {
      const auto file = trained.model.save_checkpoint(path(integrated ? "whole/averages.ckpt" : "slices/averages.ckpt"),
                                                      {.integrated = integrated, .averages = true});
      TwoLayers network;
      Model other(context, network, nullptr, nullptr);
      const auto loaded = other.load_parameters(file);
      EXPECT_EQ(loaded.loaded.size(), 4U);
      EXPECT_THAT(loaded.left_out, testing::IsEmpty());
      for (const auto& name : other.parameter_names()) {
        EXPECT_EQ(other.value(name).to_doubles(), values.at("ema." + name)) << name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AveragesOnRanks, testing::Values(1, 4));

// Compares the averages with those of a loop after each step.
class FollowAverages : public Callback {
 public:
  void step_end(RunContext& run) override {
    for (const auto& name : run.model.parameter_names()) {
      const auto now = run.model.value(name).to_doubles();
      auto& average = expected_[name];
      if (average.empty()) average = now;
      for (size_t i = 0; i < now.size(); ++i) average[i] += 0.25 * (now[i] - average[i]);
      const auto kept = run.model.value("ema." + name).to_doubles();
      EXPECT_THAT(kept, testing::Pointwise(testing::DoubleNear(1e-14), average)) << name;
      const AveragedParameters averaged(run.model);
      EXPECT_EQ(run.model.value(name).to_doubles(), kept) << name;
    }
  }

 private:
  Doubles expected_;
};

TEST(Averages, LieOnTheirParametersStageOfAPipeline) {
  constexpr int64_t kBatches = 3;
  const auto rows =
      data::generator({{"x", {DType::kF64, {6}}}, {"y", {DType::kF64, {3}}}}, kBatchRows * kBatches,
                      [](int64_t index, std::span<const TensorView> outputs) {
                        for (const TensorView& output : outputs) {
                          copy_elements(Tensor::full(output.type(), 0.1 * static_cast<double>(index % 7)).view(),
                                        output);
                        }
                      })
          .batch(kBatchRows);
  run_ranks(2, [&](cluster::Context& context) {
    TwoLayers network;
    network.up.set_stage(0);
    network.down.set_stage(1);
    nn::MSELoss loss;
    nn::Adam adam({.learning_rate = 0.01});
    nn::ExponentialMovingAverage optimizer(adam, {.decay = 0.75});
    Model model(
        context, network, &loss, &optimizer,
        {.parallel_mode = ParallelMode::kPipeline, .pipeline = {.stages = 2, .micro_batches = 2, .schedule = "1f1b"}});
    model.train(1, rows, {FollowAverages()});
    EXPECT_EQ(model.value("ema_step").to_doubles(), std::vector<double>{kBatches});
  });
}

TEST(Averages, OfAnOptimizerWithoutThemAreRefused) {
  const auto context = cluster::single_context(1);
  TwoLayers network;
  nn::MSELoss loss;
  nn::SGD optimizer;
  Model model(*context, network, &loss, &optimizer);
  EXPECT_THAT([&] { model.put_averages_in_place(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("averages: the optimizer keeps no averages")));
}

TEST(Averages, AreTheParametersBeforeTheFirstUpdate) {
  const auto context = cluster::single_context(1);
  Trained trained(*context);
  const auto before = values_of(trained.model);
  const AveragedParameters averaged(trained.model);
  EXPECT_EQ(values_of(trained.model), before);
}

}  // namespace
}  // namespace tessera::train
