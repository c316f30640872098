// No step of training allocates: after the first, neither the training threads nor those that communicate or make
// batches call malloc. What oneDNN allocates inside its own calls is left out.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tessera/base/random.h"
#include "tessera/nn/container.h"
#include "tessera/nn/convolution.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/momentum.h"
#include "tessera/nn/normalization.h"
#include "tessera/ops/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tests/allocation/malloc_count.h"

namespace tessera::allocation {
namespace {

class BatchNormNetwork : public nn::Cell {
 public:
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    x = ops::relu(norm1_(conv1_(x)));
    x = ops::relu(norm2_(conv2_(x)));
    return fc_(ops::reduce_mean(x, {2, 3}));
  }

 private:
  nn::Conv2d& conv1_ = child<nn::Conv2d>("conv1", 3, 8, nn::Conv2dOptions{.kernel = 3, .stride = 2});
  nn::BatchNorm2d& norm1_ = child<nn::BatchNorm2d>("norm1", 8);
  nn::Conv2d& conv2_ = child<nn::Conv2d>("conv2", 8, 8, nn::Conv2dOptions{.kernel = 3, .stride = 2});
  nn::BatchNorm2d& norm2_ = child<nn::BatchNorm2d>("norm2", 8);
  nn::Dense& fc_ = child<nn::Dense>("fc", 8, 10);
};

constexpr int64_t kSteps = 100;
constexpr int64_t kBatch = 4;

data::Dataset random_images() {
  return data::generator({{"image", {DType::kF32, {3, 32, 32}}}, {"label", {DType::kI32, {}}}}, kBatch * kSteps,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           const RandomStream stream{.seed = 1, .stream = static_cast<uint64_t>(index)};
                           auto* pixels = outputs[0].as<float>();
                           for (size_t i = 0; i < 3 * 32 * 32; ++i) pixels[i] = random_uniform(stream, i);
                           *outputs[1].as<int32_t>() = static_cast<int32_t>(index % 10);
                         })
      .batch(kBatch, {.drop_remainder = true});
}

// Counts from the end of the first step to the end of the last; `ranks` meet before it begins.
class Counter : public train::Callback {
 public:
  explicit Counter(int64_t* allocations) : allocations_(allocations) {}
  void step_end(train::RunContext& run) override {
    if (run.step == 1) {
      run.model.context().world().barrier("the first step is done");
      run.model.context().world().barrier("counting begins");
      before_ = num_mallocs();
      if (std::getenv("TESSERA_STOP_AT_MALLOC") != nullptr) stop_at_malloc(true);
    } else if (run.step == kSteps) {
      stop_at_malloc(false);
      *allocations_ = num_mallocs() - before_;
      run.model.context().world().barrier("counting is done");
    }
  }

 private:
  int64_t* allocations_;
  int64_t before_ = 0;
};

struct Row {
  const char* network;
  int ranks;
  int threads;
  int workers;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Row& row, std::ostream* out) { *out << row.network << " on " << row.ranks; }

class Training : public testing::TestWithParam<Row> {};

TEST_P(Training, AllocatesNothingAfterTheFirstStep) {
  const Row row = GetParam();
  std::vector<int64_t> allocations(static_cast<size_t>(row.ranks), -1);
  run_ranks(row.ranks,
            [&](cluster::Context& context) {
              const std::unique_ptr<nn::Cell> network =
                  row.network == std::string("lenet5") ? nn::lenet5(10) : std::make_unique<BatchNormNetwork>();
              nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
              nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
              train::Model model(context, *network, &loss, &optimizer,
                                 {.parallel_mode = train::ParallelMode::kDataParallel,
                                  .session = {.arena_capacity_bytes = int64_t{1} << 30}});
              model.train(1, random_images(), {Counter(&allocations[static_cast<size_t>(context.rank())])},
                          {.num_workers = row.workers});
              EXPECT_EQ(model.step(), kSteps);
            },
            {.num_compute_threads = row.threads});
  for (int rank = 0; rank < row.ranks; ++rank) {
    EXPECT_EQ(allocations[static_cast<size_t>(rank)], 0) << "seen by rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, Training,
                         testing::Values(Row{"lenet5", 1, 1, 0}, Row{"lenet5", 1, 1, 1}, Row{"lenet5", 1, 2, 1},
                                         Row{"lenet5", 2, 1, 1}, Row{"batch_norm", 1, 1, 1}, Row{"batch_norm", 2, 1, 1},
                                         Row{"batch_norm", 3, 2, 2}),
                         [](const auto& info) {
                           const Row& row = info.param;
                           return std::string(row.network) + "_ranks_" + std::to_string(row.ranks) + "_threads_" +
                                  std::to_string(row.threads) + "_workers_" + std::to_string(row.workers);
                         });

TEST(Counting, SeesAnAllocation) {
  const int64_t before = num_mallocs();
  const auto made = std::make_unique<std::vector<int>>(1000);
  EXPECT_GE(num_mallocs() - before, 2) << made->size();
}

}  // namespace
}  // namespace tessera::allocation
