// Mixed precision and loss scaling: losses near those in float32, arithmetic of the scale by hand, steps that are
// skipped on all ranks, checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using ir::Value;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// y = w x, with w = 2 at first, in f32.
struct HalfLine : nn::Cell {
  HalfLine() { weight.data = Tensor::full({DType::kF32, {1, 1}}, 2); }
  nn::Parameter& weight = parameter("weight", {DType::kF32, {1, 1}}, nn::Initializer());
  using Cell::construct;
  Value construct(Value x) override { return ops::matmul(x, weight); }
};

double precision_step(Model& model, float x, float y) {
  const Tensor input = Tensor::of<float>({1, 1}, {x});
  const Tensor label = Tensor::of<float>({1, 1}, {y});
  return model.train_step({input.view(), label.view()}, 1);
}

double value(Model& model, const std::string& name) { return model.value(name).to_doubles()[0]; }

TEST(LossScale, DividesTheGradientsByWhatTheLossIsMultipliedWith) {
  const auto context = cluster::single_context(1);
  HalfLine network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.25});
  Model model(*context, network, &loss, &optimizer, {.loss_scale = nn::fixed_loss_scale(1024)});
  // loss = (w x - y)^2 = 1, its gradient 2 x (w x - y) = 2.
  EXPECT_EQ(precision_step(model, 1, 1), 1);
  EXPECT_EQ(value(model, "weight"), 1.5);
  EXPECT_EQ(value(model, "loss_scale"), 1024);
  const auto graph = ir::print(model.train_executable()->compiled().logical);
  EXPECT_THAT(graph, HasSubstr("state loss_scale f32[]"));
}

TEST(LossScale, HalvesWhenAStepOverflowsAndDoublesAfterCleanOnes) {
  const auto context = cluster::single_context(1);
  HalfLine network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0});
  const auto scale = nn::dynamic_loss_scale({.init_loss_scale = 4, .scale_factor = 2, .scale_window = 3});
  Model model(*context, network, &loss, &optimizer, {.loss_scale = scale});
  // Its loss and its gradient, (2 x)^2, are finite; times a scale above 1 the gradient is not.
  constexpr float kLarge = 9e18F;
  std::vector<double> scales;
  std::vector<double> clean_steps;
  for (const float x : {1.0F, 1.0F, 1.0F, 1.0F, kLarge, 1.0F, kInfinity, kLarge, kLarge}) {
    precision_step(model, x, 1);
    EXPECT_EQ(model.was_skipped(), clean_steps.size() == 4 || clean_steps.size() == 6 || clean_steps.size() == 7);
    scales.push_back(value(model, "loss_scale"));
    clean_steps.push_back(value(model, "loss_scale_clean_steps"));
  }
  EXPECT_THAT(scales, ElementsAre(4, 4, 8, 8, 4, 4, 2, 1, 1));
  EXPECT_THAT(clean_steps, ElementsAre(1, 2, 0, 1, 0, 1, 0, 0, 1));
  EXPECT_EQ(model.step(), 9);
}

TEST(LossScale, ASkippedStepLeavesParametersMomentsAndCounters) {
  const auto context = cluster::single_context(1);
  HalfLine network;
  nn::MSELoss loss;
  nn::Adam optimizer({.learning_rate = std::vector<double>{0.5, 0.25, 0.125}});
  Model model(*context, network, &loss, &optimizer, {.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024})});
  precision_step(model, 1, 1);
  std::map<std::string, std::vector<double>> before;
  for (const auto& name : model.names()) before[name] = model.value(name).to_doubles();
  precision_step(model, 1e30F, 1);
  EXPECT_TRUE(model.was_skipped());
  for (const auto& name : model.names()) {
    if (name.starts_with("loss_scale")) continue;
    EXPECT_EQ(model.value(name).to_doubles(), before[name]) << name;
  }
  EXPECT_EQ(value(model, "global_step"), 1);
  precision_step(model, 1, 1);
  EXPECT_FALSE(model.was_skipped());
  EXPECT_EQ(value(model, "global_step"), 2);
  EXPECT_NE(value(model, "weight"), before["weight"][0]);
}

TEST(LossScale, MovingStatisticsOfASkippedStepAreForgotten) {
  const auto context = cluster::single_context(1);
  struct Net : nn::Cell {
    nn::BatchNorm2d& norm = child<nn::BatchNorm2d>("norm", 1);
    using Cell::construct;
    Value construct(Value x) override { return norm(x); }
  } network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.5});
  Model model(*context, network, &loss, &optimizer, {.loss_scale = nn::dynamic_loss_scale()});
  const Tensor bad = Tensor::full({DType::kF32, {2, 1, 2, 2}}, kInfinity);
  model.train_step({bad.view(), bad.view()}, 2);
  EXPECT_TRUE(model.was_skipped());
  EXPECT_EQ(value(model, "norm.moving_mean"), 0);
  EXPECT_EQ(value(model, "norm.moving_variance"), 1);
}

TEST(LossScale, AMicroBatchThatOverflowsSkipsItsStepAndNoOther) {
  const auto context = cluster::single_context(1);
  HalfLine network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.25});
  Model model(*context, network, &loss, &optimizer,
              {.gradient_accumulation_steps = 2, .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 8})});
  precision_step(model, 1e30F, 1);
  EXPECT_EQ(value(model, "accu_overflow"), 1);
  precision_step(model, 1, 1);
  EXPECT_TRUE(model.was_skipped());
  EXPECT_EQ(value(model, "weight"), 2);
  EXPECT_EQ(value(model, "loss_scale"), 4);
  EXPECT_EQ(value(model, "accu_overflow"), 0);
  EXPECT_EQ(value(model, "accu_grads.weight"), 0);
  // Gradients 2 and 2: the mean of the losses has 2.
  precision_step(model, 1, 1);
  precision_step(model, 1, 1);
  EXPECT_FALSE(model.was_skipped());
  EXPECT_EQ(value(model, "weight"), 1.5);
}

TEST(LossScale, ALossThatNoScaleRepairsEndsTraining) {
  const auto context = cluster::single_context(1);
  HalfLine network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.25});
  Model fixed(*context, network, &loss, &optimizer, {.loss_scale = nn::fixed_loss_scale(8)});
  EXPECT_THAT([&] { precision_step(fixed, kInfinity, 1); },
              ThrowsMessage<executor::NonFiniteLoss>(
                  testing::AllOf(HasSubstr("a loss scale that cannot fall; first non-finite"),
                                 HasSubstr("; column \"input0\": row 0 holds inf at [0"))));
  EXPECT_EQ(value(fixed, "weight"), 2);
  Model dynamic(*context, network, &loss, &optimizer, {.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 4})});
  precision_step(dynamic, kInfinity, 1);
  EXPECT_THROW(precision_step(dynamic, kInfinity, 1), executor::NonFiniteLoss);
}

TEST(LossScale, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(nn::dynamic_loss_scale({.init_loss_scale = 0.5}), InvalidArgument);
  EXPECT_THROW(nn::dynamic_loss_scale({.scale_factor = 1}), InvalidArgument);
  EXPECT_THROW(nn::dynamic_loss_scale({.scale_window = 0}), InvalidArgument);
  EXPECT_THROW(nn::fixed_loss_scale(0), InvalidArgument);
}

// --- many ranks ------------------------------------------------------------------------------------------------------

struct PrecisionPlan {
  const char* name;
  ModelOptions options;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const PrecisionPlan& plan, std::ostream* out) { *out << plan.name; }

class OverflowOnOneRank : public testing::TestWithParam<PrecisionPlan> {};

TEST_P(OverflowOnOneRank, SkipsTheStepOnAll) {
  constexpr int kRanks = 3;
  run_ranks(kRanks, [&](cluster::Context& context) {
    struct Net : nn::Cell {
      nn::Dense& dense = child<nn::Dense>("dense", 6, 6);
      using Cell::construct;
      Value construct(Value x) override { return dense(x); }
    } network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    ModelOptions options = GetParam().options;
    options.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024});
    options.parallel_optimizer_threshold = 0;
    Model model(context, network, &loss, &optimizer, options);
    const bool whole = options.parallel_mode == ParallelMode::kSemiAuto;
    const int64_t rows = whole ? kRanks : 1;
    const auto train = [&](bool overflows) {
      Tensor x = Tensor::full({DType::kF32, {rows, 6}}, 0.5);
      const Tensor label = Tensor::full({DType::kF32, {rows, 6}}, 1);
      // The rows of rank 1.
      const size_t at = whole ? 6 : 0;
      if (overflows && (whole || context.rank() == 1)) x.values<float>()[at] = 1e30F;
      const bool hybrid = options.parallel_mode == ParallelMode::kHybrid;
      model.train_step({x.view(), label.view()}, hybrid ? 1 : kRanks);
    };
    train(false);
    const auto before = model.value("dense.weight").to_doubles();
    const auto moments = model.value("moments.dense.weight").to_doubles();
    train(true);
    EXPECT_TRUE(model.was_skipped()) << context.rank();
    EXPECT_EQ(model.value("dense.weight").to_doubles(), before);
    EXPECT_EQ(model.value("moments.dense.weight").to_doubles(), moments);
    EXPECT_EQ(model.value("loss_scale").to_doubles()[0], 512);
    train(false);
    EXPECT_FALSE(model.was_skipped()) << context.rank();
    EXPECT_NE(model.value("dense.weight").to_doubles(), before);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Plans, OverflowOnOneRank,
    testing::Values(PrecisionPlan{"data", {.parallel_mode = ParallelMode::kDataParallel}},
                    PrecisionPlan{"shards", {.parallel_mode = ParallelMode::kDataParallel, .parallel_optimizer = true}},
                    PrecisionPlan{"semi", {.parallel_mode = ParallelMode::kSemiAuto}},
                    PrecisionPlan{"hybrid", {.parallel_mode = ParallelMode::kHybrid}}),
    [](const auto& info) { return info.param.name; });

// --- losses ----------------------------------------------------------------------------------------------------------

struct SmallNet : nn::Cell {
  nn::Conv2d& conv1 = child<nn::Conv2d>("conv1", 3, 8, nn::Conv2dOptions{.kernel = 3});
  nn::BatchNorm2d& norm1 = child<nn::BatchNorm2d>("norm1", 8);
  nn::Conv2d& conv2 = child<nn::Conv2d>("conv2", 8, 8, nn::Conv2dOptions{.kernel = 3});
  nn::BatchNorm2d& norm2 = child<nn::BatchNorm2d>("norm2", 8);
  nn::Dense& dense = child<nn::Dense>("dense", 8, 4);
  using Cell::construct;
  Value construct(Value x) override {
    const Value y = ops::relu(norm1(conv1(x)));
    return dense(ops::reduce_mean(ops::relu(ops::add(norm2(conv2(y)), y)), {2, 3}));
  }
};

// Images whose class is the quarter that is bright.
Tensor images(int64_t batch, int64_t number) {
  Tensor tensor(DType::kF32, {batch, 3, 8, 8});
  const auto values = tensor.values<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t image = i / 192;
    const size_t quarter = (i % 64) / 32 * 2 + (i % 8) / 4;
    const double noise = random_normal({.seed = 3, .step = static_cast<uint64_t>(number)}, i);
    values[i] = static_cast<float>(noise + (image % 4 == quarter ? 1.0 : 0.0));
  }
  return tensor;
}
Tensor labels(int64_t batch) {
  Tensor tensor(DType::kI32, {batch});
  for (int64_t i = 0; i < batch; ++i) tensor.values<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 4);
  return tensor;
}

TensorView rows_of(const Tensor& tensor, const mesh::Range& rows) {
  TensorView view = tensor.view();
  const int64_t bytes = view.strides[0] * static_cast<int64_t>(size_bytes(view.dtype));
  view.data = static_cast<std::byte*>(view.data) + rows.offset * bytes;
  view.shape[0] = rows.size;
  return view;
}

std::vector<double> losses_of(const ModelOptions& options, int ranks, int64_t steps) {
  std::vector<double> losses;
  std::mutex mutex;
  run_ranks(ranks, [&](cluster::Context& context) {
    SmallNet network;
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
    ModelOptions own = options;
    own.parallel_mode = ranks > 1 ? ParallelMode::kDataParallel : ParallelMode::kStandAlone;
    own.session.num_threads = 1;
    Model model(context, network, &loss, &optimizer, own);
    for (int64_t i = 0; i < steps; ++i) {
      const Tensor x = images(8, i);
      const Tensor y = labels(8);
      const auto rows = mesh::balanced_part(8, ranks, context.rank());
      const double result = model.train_step({rows_of(x, rows), rows_of(y, rows)}, 8);
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) losses.push_back(result);
    }
    for (const nn::Parameter* parameter : network.parameters()) {
      EXPECT_EQ(model.value(parameter->full_name()).dtype(), DType::kF32) << parameter->full_name();
    }
  });
  return losses;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double each : values) sum += each;
  return sum / static_cast<double>(values.size());
}

TEST(MixedPrecision, LossesOfAHundredStepsAreWithinTwoPercentOfFloat32) {
  const auto wide = losses_of({}, 1, 100);
  EXPECT_LT(wide.back(), wide.front() / 2);
  // A dynamic scale begins where no step overflows: one that is skipped would set the losses a step apart.
  const auto scale = nn::dynamic_loss_scale({.init_loss_scale = 1024});
  for (const auto& options :
       {ModelOptions{.precision = DType::kBF16}, ModelOptions{.precision = DType::kF16, .loss_scale = scale},
        ModelOptions{.amp_level = "O2", .loss_scale = scale},
        ModelOptions{.amp_level = "O3", .loss_scale = nn::fixed_loss_scale(1024)}}) {
    const auto low = losses_of(options, 1, 100);
    const double deviation = mean(low) / mean(wide) - 1;
    std::cout << (options.precision ? to_string(*options.precision) : options.amp_level) << ": " << deviation << "\n";
    EXPECT_LT(std::abs(deviation), 0.02);
    EXPECT_NE(low, wide);
  }
}

TEST(MixedPrecision, LossesDoNotDependOnThePlan) {
  const auto one = losses_of({.precision = DType::kBF16}, 1, 10);
  for (const int ranks : {2, 3, 4}) {
    for (const bool shards : {false, true}) {
      const auto many = losses_of(
          {.parallel_optimizer = shards, .parallel_optimizer_threshold = 0, .precision = DType::kBF16}, ranks, 10);
      double worst = 0;
      for (size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(many[i] / one[i] - 1));
      std::cout << ranks << " ranks" << (shards ? ", shards" : "") << ": " << worst << "\n";
      EXPECT_LT(worst, 1.0 / 128);  // of bf16
    }
  }
}

TEST(MixedPrecision, ACellMayAskForItsOwn) {
  const auto context = cluster::single_context(1);
  SmallNet network;
  network.conv2.to_float(DType::kF32);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::SGD optimizer({.learning_rate = 0.05});
  Model model(*context, network, &loss, &optimizer, {.precision = DType::kBF16});
  const auto graph = ir::print(model.trace_train({{"x", {DType::kF32, {4, 3, 8, 8}}}, {"y", {DType::kI32, {4}}}}));
  EXPECT_THAT(graph, HasSubstr(": bf16[4,8,8,8] @ conv1"));
  EXPECT_THAT(graph, HasSubstr(": f32[4,8,8,8] @ conv2"));
  EXPECT_THAT(graph, testing::Not(HasSubstr(": bf16[4,8,8,8] @ conv2\n")));
}

TEST(MixedPrecision, LevelsAndDtypesAreCheckedAndAutoIsThatOfACpu) {
  const auto context = cluster::single_context(1);
  const auto refused = [&](const ModelOptions& options, const char* text) {
    EXPECT_THAT(
        [&] {
          HalfLine network;
          nn::MSELoss loss;
          nn::SGD optimizer({.learning_rate = 0.1});
          Model(*context, network, &loss, &optimizer, options);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused({.amp_level = "O1"}, "unknown amp_level \"O1\"; available: O0, O2, O3, auto");
  refused({.precision = DType::kI32}, "precision must be f32, bf16 or f16, is i32");
  refused({.precision = DType::kBF16, .amp_level = "O2"}, "not both");
  EXPECT_EQ(losses_of({.amp_level = "auto"}, 1, 2), losses_of({}, 1, 2));
}

TEST(MixedPrecision, ACheckpointHoldsFloat32AndTheScaleAndTrainingGoesOnFromIt) {
  const auto context = cluster::single_context(1);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-precision-{}", ::getpid());
  const auto path = (folder / "middle.ckpt").string();
  const auto run = [&](bool resumes) {
    HalfLine network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.5});
    Model model(
        *context, network, &loss, &optimizer,
        {.precision = DType::kF16, .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 256, .scale_window = 2})});
    if (resumes) {
      model.load_checkpoint(path);
      EXPECT_EQ(value(model, "loss_scale"), 128);
      EXPECT_EQ(value(model, "loss_scale_clean_steps"), 1);
    } else {
      precision_step(model, 1, 1);
      precision_step(model, 1e30F, 1);
      precision_step(model, 1, 1);
      model.save_checkpoint(path);
      EXPECT_EQ(checkpoint::load(context->file_system(), path).find("weight")->dtype, DType::kF32);
    }
    for (int i = 0; i < 3; ++i) precision_step(model, 1, 1);
    EXPECT_EQ(value(model, "loss_scale"), 512);
    return model.value("weight").to_doubles();
  };
  const auto whole = run(false);
  EXPECT_EQ(run(true), whole);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::train
