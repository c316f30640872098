// The memory of training is known before the first step: the process takes the arena, and little beside.
#include <gtest/gtest.h>

#include "tessera/base/random.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/train/model.h"
#include "tests/allocation/peak_resident.h"

namespace tessera::allocation {
namespace {

// Beside the arena: the program, its libraries and what they build at run time, stacks of threads, batches that are
// made ahead.
constexpr int64_t kElse = int64_t{96} << 20;
constexpr int64_t kSteps = 2;

class Network : public nn::Cell {
 public:
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    x = ops::relu(norm1_(conv1_(x)));
    x = ops::relu(norm2_(conv2_(x)));
    return fc_(ops::reduce_mean(x, {2, 3}));
  }

 private:
  nn::Conv2d& conv1_ = child<nn::Conv2d>("conv1", 3, 32, nn::Conv2dOptions{.kernel = 3, .stride = 1});
  nn::BatchNorm2d& norm1_ = child<nn::BatchNorm2d>("norm1", 32);
  nn::Conv2d& conv2_ = child<nn::Conv2d>("conv2", 32, 32, nn::Conv2dOptions{.kernel = 3, .stride = 2});
  nn::BatchNorm2d& norm2_ = child<nn::BatchNorm2d>("norm2", 32);
  nn::Dense& fc_ = child<nn::Dense>("fc", 32, 10);
};

data::Dataset random_images(int64_t batch) {
  return data::generator({{"image", {DType::kF32, {3, 32, 32}}}, {"label", {DType::kI32, {}}}}, batch * kSteps,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           const RandomStream stream{.seed = 1, .stream = static_cast<uint64_t>(index)};
                           auto* pixels = outputs[0].as<float>();
                           for (size_t i = 0; i < 3 * 32 * 32; ++i) pixels[i] = random_uniform(stream, i);
                           *outputs[1].as<int32_t>() = static_cast<int32_t>(index % 10);
                         })
      .batch(batch, {.drop_remainder = true});
}

class Resident : public testing::TestWithParam<int64_t> {};

// The larger batch comes last: the process's peak is then its own.
TEST_P(Resident, PeakIsTheArenaAndAStatedRest) {
  const auto context = cluster::single_context(2);
  Network network;
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
  train::Model model(*context, network, &loss, &optimizer, {});
  model.train(1, random_images(GetParam()), {}, {.num_workers = 1});
  const int64_t arena = model.session().arena_bytes();
  EXPECT_GE(peak_resident_bytes(), arena);
  EXPECT_LE(peak_resident_bytes(), arena + kElse);
  const auto memory = model.session().arena_memory();
  // All of it was touched before the first step, up to the end of the last huge page.
  EXPECT_GE(memory.resident_bytes, arena);
  EXPECT_LE(memory.resident_bytes, arena + (int64_t{2} << 20));
  EXPECT_LE(memory.huge_page_bytes, memory.resident_bytes);
}

INSTANTIATE_TEST_SUITE_P(Batches, Resident, testing::Values(int64_t{8}, int64_t{256}),
                         [](const auto& info) { return "of_" + std::to_string(info.param); });

}  // namespace
}  // namespace tessera::allocation
