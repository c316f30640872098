// Gradient accumulation against arithmetic by hand, and on several ranks against one with the same micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using ir::Value;
using testing::DoubleEq;
using testing::HasSubstr;
using testing::ThrowsMessage;

// y = w x, with w = 2 at first.
struct Line : nn::Cell {
  Line() { weight.data = Tensor::full({DType::kF64, {1, 1}}, 2); }
  nn::Parameter& weight = parameter("weight", {DType::kF64, {1, 1}}, nn::Initializer());
  using Cell::construct;
  Value construct(Value x) override { return ops::matmul(x, weight); }
};

double step(Model& model, double x, double y) {
  const Tensor input = Tensor::full({DType::kF64, {1, 1}}, x);
  const Tensor label = Tensor::full({DType::kF64, {1, 1}}, y);
  return model.train_step({input.view(), label.view()}, 1);
}

TEST(GradientAccumulation, IsTheGradientOfTheMeanOfTheMicroBatches) {
  const auto context = cluster::single_context(1);
  Line network;
  nn::MSELoss loss;
  // A rate for each step: were it read once per batch, the second step would take another.
  nn::SGD optimizer({.learning_rate = std::vector<double>{0.5, 0.25, 8, 8}});
  Model model(*context, network, &loss, &optimizer, {.gradient_accumulation_steps = 2});
  const auto value = [&](const std::string& name) { return model.value(name).to_doubles()[0]; };

  // loss = (w x - y)^2, its gradient 2 x (w x - y).
  EXPECT_DOUBLE_EQ(step(model, 1, 1), 1);  // 2 - 1; gradient 2
  EXPECT_DOUBLE_EQ(value("weight"), 2);
  EXPECT_DOUBLE_EQ(value("accu_grads.weight"), 1);  // a half of it
  EXPECT_EQ(value("global_step"), 0);
  EXPECT_EQ(model.step(), 0);

  EXPECT_DOUBLE_EQ(step(model, 2, 1), 5);          // 4 - 1: 9, gradient 12; the mean of 1 and 9
  EXPECT_DOUBLE_EQ(value("weight"), 2 - 0.5 * 7);  // (2 + 12) / 2
  EXPECT_EQ(value("accu_grads.weight"), 0);
  EXPECT_EQ(value("global_step"), 1);
  EXPECT_EQ(model.step(), 1);

  // w = -1.5
  EXPECT_DOUBLE_EQ(step(model, 2, 0), 9);              // -3; gradient -12
  EXPECT_DOUBLE_EQ(step(model, 4, -8), 6.5);           // -6 + 8: 4, gradient 16
  EXPECT_DOUBLE_EQ(value("weight"), -1.5 - 0.25 * 2);  // (-12 + 16) / 2
  EXPECT_EQ(value("global_step"), 2);
}

TEST(GradientAccumulation, StopsAndGoesOnInTheMiddleOfAStep) {
  const auto context = cluster::single_context(1);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-accumulation-{}", ::getpid());
  const auto path = (folder / "middle.ckpt").string();
  const auto run = [&](bool stops) {
    Line network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.5, .momentum = 0.5});
    Model model(*context, network, &loss, &optimizer, {.gradient_accumulation_steps = 3});
    if (!stops) {
      step(model, 1, 1);
      step(model, 2, 1);
      model.save_checkpoint(path);
      EXPECT_NE(model.value("accu_grads.weight").to_doubles()[0], 0);
    } else {
      model.load_checkpoint(path);
    }
    step(model, 3, 1);
    EXPECT_EQ(model.step(), 1);
    return model.value("weight").to_doubles();
  };
  const auto whole = run(false);
  EXPECT_EQ(run(true), whole);
  std::filesystem::remove_all(folder);
}

TEST(GradientAccumulation, BetweenStepsACheckpointIsThatOfAnyModel) {
  const auto context = cluster::single_context(1);
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-accumulation-{}", ::getpid());
  const auto path = (folder / "whole.ckpt").string();
  Line network;
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.5, .momentum = 0.5});
  Model model(*context, network, &loss, &optimizer, {.gradient_accumulation_steps = 2});
  step(model, 1, 1);
  step(model, 2, 1);
  model.save_checkpoint(path);
  Line other_network;
  Model other(*context, other_network, &loss, &optimizer);
  other.load_checkpoint(path);
  EXPECT_EQ(other.value("weight").to_doubles(), model.value("weight").to_doubles());
  other.save_checkpoint(path);
  step(model, 1, 1);
  model.load_checkpoint(path);
  EXPECT_EQ(model.value("accu_grads.weight").to_doubles()[0], 0);
  std::filesystem::remove_all(folder);
}

TEST(GradientAccumulation, AnEpochOfPartsOfStepsIsRefused) {
  const auto context = cluster::single_context(1);
  Line network;
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.1});
  Model model(*context, network, &loss, &optimizer, {.gradient_accumulation_steps = 4});
  const auto dataset = data::generator({{"x", {DType::kF64, {1}}}, {"y", {DType::kF64, {1}}}}, 10,
                                       [](int64_t, std::span<const TensorView> outputs) {
                                         *outputs[0].as<double>() = 1;
                                         *outputs[1].as<double>() = 1;
                                       })
                           .batch(1);
  EXPECT_THAT([&] { model.train(1, dataset); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("10 batches an epoch are no whole number of steps of 4 batches; take(8) makes them one")));
  EXPECT_THAT(
      [&] { model.train(1, dataset.take(3)); },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "an epoch has 3 batches, fewer than the 4 of a step (gradient_accumulation_steps): accumulate over at "
          "most 3, make smaller batches, or repeat the data set so that 4 divides its batches")));
  model.train(2, dataset.take(8));
  EXPECT_EQ(model.step(), 4);
  EXPECT_EQ(model.value("global_step").to_doubles()[0], 4);
}

// Elements that the present step's collectives reduce.
int64_t reduced_elements(Model& model) {
  const auto& local = model.train_executable()->compiled().local;
  int64_t elements = 0;
  for (ir::NodeId n = 0; n < local.num_nodes(); ++n) {
    const auto& node = local.node(n);
    if (node.op == "all_reduce" || node.op == "reduce_scatter")
      elements += local.type(node.inputs[0]).shape.num_elements();
  }
  return elements;
}

TEST(GradientAccumulation, ReducesGradientsOverRanksOnceAStep) {
  for (const bool shards : {false, true}) {
    run_ranks(2, [&](cluster::Context& context) {
      nn::Dense network(3, 4);
      nn::MSELoss loss;
      nn::SGD optimizer({.learning_rate = 0.1});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kDataParallel,
                   .gradient_accumulation_steps = 2,
                   .parallel_optimizer = shards,
                   .parallel_optimizer_threshold = 0});
      const Tensor x = Tensor::full({DType::kF32, {1, 3}}, 1);
      const Tensor y = Tensor::full({DType::kF32, {1, 4}}, 1);
      model.train_step({x.view(), y.view()}, 2);
      EXPECT_EQ(reduced_elements(model), 1) << "the loss";
      model.train_step({x.view(), y.view()}, 2);
      EXPECT_EQ(reduced_elements(model), 1 + 4 * 3 + 4) << "the loss, weight and bias";
    });
  }
}

TEST(GradientAccumulation, OfSeveralRanksIsSavedAsItsSumAndFinishedByOne) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-accumulation-{}", ::getpid());
  const auto path = (folder / "sum.ckpt").string();
  const auto weight_after = [&](const std::vector<int>& ranks_of_batch, bool integrated = true) {
    std::vector<double> weight;
    for (size_t batch = 0; batch < ranks_of_batch.size(); ++batch) {
      run_ranks(ranks_of_batch[batch], [&](cluster::Context& context) {
        Line network;
        nn::MSELoss loss;
        nn::SGD optimizer({.learning_rate = 0.25});
        Model model(context, network, &loss, &optimizer,
                    {.parallel_mode = ParallelMode::kDataParallel, .gradient_accumulation_steps = 2});
        if (batch > 0) model.load_checkpoint(path);
        // Rows 1 and 2 of the batch.
        const auto rows = mesh::balanced_part(2, context.size(), context.rank());
        Tensor x(DType::kF64, Shape{rows.size, 1});
        for (int64_t r = 0; r < rows.size; ++r)
          x.values<double>()[static_cast<size_t>(r)] = static_cast<double>(rows.offset + r + 1);
        const Tensor y = Tensor::full(x.type(), 1);
        model.train_step({x.view(), y.view()}, 2);
        model.save_checkpoint(path, {.integrated = integrated});
        const auto value = model.value("weight").to_doubles();
        if (context.rank() == 0) weight = value;
      });
    }
    std::filesystem::remove_all(folder);
    return weight[0];
  };
  // (2 x - 1) 2 x: 2 and 12 in either batch.
  EXPECT_THAT(weight_after({1, 1}), DoubleEq(2 - 0.25 * 7));
  EXPECT_THAT(weight_after({2, 1}), DoubleEq(2 - 0.25 * 7));
  EXPECT_THAT(weight_after({1, 2}), DoubleEq(2 - 0.25 * 7));
  EXPECT_THAT(weight_after({2, 1}, /*integrated=*/false), DoubleEq(2 - 0.25 * 7));
}

// Convolution with batch normalisation, and a dense layer.
struct Network : nn::Cell {
  nn::Conv2d& conv = child<nn::Conv2d>("conv", 3, 4, nn::Conv2dOptions{.kernel = 3});
  nn::BatchNorm2d& norm = child<nn::BatchNorm2d>("norm", 4);
  nn::Dense& fc = child<nn::Dense>("fc", 4, 5);
  using Cell::construct;
  Value construct(Value x) override { return fc(ops::reduce_mean(ops::relu(norm(conv(x))), {2, 3})); }
};

constexpr int64_t kRows = 8;
constexpr int64_t kMicroBatches = 4;
constexpr int64_t kSteps = 3;

// Row r of batch b is the same however the rows are dealt out.
data::Dataset images(DType dtype) {
  return data::generator({{"image", {dtype, {3, 6, 6}}}, {"label", {DType::kI32, {}}}}, kRows * kMicroBatches * kSteps,
                         [dtype](int64_t index, std::span<const TensorView> outputs) {
                           const RandomStream stream{.seed = 1, .stream = static_cast<uint64_t>(index)};
                           for (uint64_t i = 0; i < 3 * 6 * 6; ++i) {
                             const double pixel = random_normal(stream, i);
                             if (dtype == DType::kF64) {
                               outputs[0].as<double>()[i] = pixel;
                             } else {
                               outputs[0].as<float>()[i] = static_cast<float>(pixel);
                             }
                           }
                           *outputs[1].as<int32_t>() = static_cast<int32_t>(index % 5);
                         })
      .batch(kRows, {.drop_remainder = true});
}

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> values;
};

class Losses : public Callback {
 public:
  explicit Losses(std::vector<double>* losses) : losses_(losses) {}
  void step_end(RunContext& run) override { losses_->push_back(run.loss); }

 private:
  std::vector<double>* losses_;
};

struct Plan {
  std::string name;
  int ranks = 1;
  ParallelMode mode = ParallelMode::kStandAlone;
  bool parallel_optimizer = false;
};

Outcome train(const Plan& plan, DType dtype) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(plan.ranks, [&](cluster::Context& context) {
    Network network;
    nn::set_parameter_dtype(network, dtype);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = plan.mode,
                 .gradient_accumulation_steps = kMicroBatches,
                 .parallel_optimizer = plan.parallel_optimizer,
                 .parallel_optimizer_threshold = 0,
                 .session = {.reference_kernels = dtype == DType::kF64, .num_threads = 1}});
    std::vector<double> losses;
    model.train(1, images(dtype), {Losses(&losses)});
    EXPECT_EQ(model.step(), kSteps);
    for (const auto& name : model.names()) {
      const auto value = model.value(name).to_doubles();
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) outcome.values[name] = value;
    }
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) outcome.losses = losses;
  });
  return outcome;
}

class Accumulation : public testing::TestWithParam<Plan> {};

TEST_P(Accumulation, OnSeveralRanksEqualsOneWithTheSameMicroBatches) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const auto one = train({}, dtype);
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps));
    const auto many = train(GetParam(), dtype);
    double worst = relative_deviation(one.losses, many.losses);
    for (const auto& [name, value] : one.values)
      worst = std::max(worst, relative_deviation(value, many.values.at(name)));
    std::cout << fmt::format("{} {}: {:.1e}\n", GetParam().name, dtype, worst);
    EXPECT_LT(worst, dtype == DType::kF64 ? 1e-12 : 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Accumulation,
                         testing::Values(Plan{"data_2", 2, ParallelMode::kDataParallel},
                                         Plan{"data_4", 4, ParallelMode::kDataParallel},
                                         Plan{"data_3_uneven", 3, ParallelMode::kDataParallel},
                                         Plan{"optimizer_shards_4", 4, ParallelMode::kDataParallel, true},
                                         Plan{"semi_auto_2", 2, ParallelMode::kSemiAuto},
                                         Plan{"semi_auto_4", 4, ParallelMode::kSemiAuto}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::train
