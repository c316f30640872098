// What a model has compiled for its network, and for which: after the network has changed, after a plan that failed,
// and of predictions that change values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/saving/snapshot.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;

// Batches of four.
data::Dataset rows() {
  return data::generator({{"x", {DType::kF32, {4}}}, {"y", {DType::kF32, {4}}}}, 8,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           for (const auto& output : outputs) {
                             copy_elements(Tensor::full(output.type(), static_cast<double>(index)).view(), output);
                           }
                         })
      .batch(4);
}

std::string text_of(Model& model) { return print(model.train_executable()->compiled().logical); }

struct Scaled : nn::Cell {
  nn::Dense& dense = child<nn::Dense>("dense", 4, 4);
  double factor = 3;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return dense(x) * factor; }
};

TEST(CompiledSteps, OfANetworkThatHasChangedAreWhatItIsSavedBy) {
  const auto context = cluster::single_context(1);
  Scaled network;
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
  for (const int64_t per_step : {1, 2}) {
    network.factor = 3;
    Model model(*context, network, &loss, &optimizer, {.gradient_accumulation_steps = per_step});
    EXPECT_EQ(model.train_executable(), nullptr);
    model.train(1, rows());
    EXPECT_THAT(text_of(model), HasSubstr("value=3.0"));
    network.factor = 5;
    model.network_changed();
    EXPECT_THAT(text_of(model), HasSubstr("value=3.0"));
    model.build(rows());
    EXPECT_THAT(text_of(model), HasSubstr("value=5.0"));
    const auto path =
        (std::filesystem::temp_directory_path() / fmt::format("tessera-steps-{}.ckpt", ::getpid())).string();
    model.save_checkpoint(path, {.async = true});
    model.finish_saves();
    std::filesystem::remove(path);
    std::filesystem::remove(path + ".manifest");
  }
}

TEST(CompiledSteps, ArePlannedWhenThePlanBeforeFailed) {
  run_ranks(2, [](cluster::Context& context) {
    nn::Dense network(4, 4);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kSemiAuto});
    network.shard("matmul", {{1, 1}, {3, 1}});
    EXPECT_THROW(model.build(rows()), InvalidArgument);
    network.shard("matmul", {{1, 1}, {2, 1}});
    model.network_changed();
    model.build(rows());
    EXPECT_TRUE(model.session().is_split("weight"));
    model.train(1, rows());
  });
}

// Counts how often it is called.
struct Counting : nn::Cell {
  nn::Dense& dense = child<nn::Dense>("dense", 4, 4);
  nn::Parameter& calls = parameter("calls", {DType::kF32, {1}}, nn::Init("zeros"), /*requires_grad=*/false);
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    calls.assign(static_cast<ir::Value>(calls) + 1.0);
    return dense(x);
  }
};

TEST(CompiledSteps, OfAPredictionThatChangesValuesWaitForTheCopyOfASave) {
  const auto context = cluster::single_context(1);
  Counting network;
  Model model(*context, network, nullptr, nullptr);
  const Tensor x = Tensor::full({DType::kF32, {2, 4}}, 1);
  model.predict({x});
  EXPECT_EQ(model.value("calls").item(), 1);
  const auto path =
      (std::filesystem::temp_directory_path() / fmt::format("tessera-calls-{}.ckpt", ::getpid())).string();
  model.snapshot().set_copies_in_background(false);
  model.save_checkpoint(path, {.async = true});
  model.predict({x});
  model.finish_saves();
  EXPECT_EQ(model.value("calls").item(), 2);
  EXPECT_EQ(checkpoint::load(FileSystem::local(), path).find("calls")->read().item(), 1);
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".manifest");
}

}  // namespace
}  // namespace tessera::train
