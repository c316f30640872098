// No step of training allocates: after the first, neither the training threads nor those that communicate or make
// batches call malloc. What oneDNN allocates inside its own calls is left out. And no step starts a thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "tessera/base/core_watch.h"
#include "tessera/base/random.h"
#include "tessera/data/batch_iterator.h"
#include "tessera/nn/container.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
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
  Counter(int64_t* allocations, int64_t num_steps) : allocations_(allocations), num_steps_(num_steps) {}
  void step_end(train::RunContext& run) override {
    if (run.step == 1) {
      run.model.context().world().barrier("the first step is done");
      run.model.context().world().barrier("counting begins");
      before_ = num_mallocs();
      if (std::getenv("TESSERA_STOP_AT_MALLOC") != nullptr) stop_at_malloc(true);
    } else if (run.step == num_steps_) {
      stop_at_malloc(false);
      *allocations_ = num_mallocs() - before_;
      run.model.context().world().barrier("counting is done");
    }
  }

 private:
  int64_t* allocations_;
  int64_t num_steps_;
  int64_t before_ = 0;
};

struct Row {
  const char* network;
  int ranks;
  int threads;
  int workers;
  train::ParallelMode mode = train::ParallelMode::kDataParallel;
  int64_t batches_per_step = 1;
};

std::string name_of(const Row& row) {
  std::string name = fmt::format("{}_ranks_{}_threads_{}_workers_{}", row.network, row.ranks, row.threads, row.workers);
  if (row.mode == train::ParallelMode::kHybrid) name += "_hybrid";
  if (row.mode == train::ParallelMode::kSemiAuto) name += "_semi_auto";
  if (row.batches_per_step > 1) name += "_accumulated";
  return name;
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Row& row, std::ostream* out) { *out << name_of(row); }

std::unique_ptr<nn::Cell> make_network(const Row& row) {
  return row.network == std::string("lenet5") ? nn::lenet5(10) : std::make_unique<BatchNormNetwork>();
}

train::ModelOptions options_of(const Row& row) {
  return {.parallel_mode = row.mode,
          .gradient_accumulation_steps = row.batches_per_step,
          .session = {.arena_capacity_bytes = int64_t{1} << 30}};
}

class Training : public testing::TestWithParam<Row> {};

TEST_P(Training, AllocatesNothingAfterTheFirstStep) {
  const Row row = GetParam();
  std::vector<int64_t> allocations(static_cast<size_t>(row.ranks), -1);
  run_ranks(row.ranks,
            [&](cluster::Context& context) {
              const auto network = make_network(row);
              nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
              nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
              train::Model model(context, *network, &loss, &optimizer, options_of(row));
              const int64_t num_steps = kSteps / row.batches_per_step;
              model.train(1, random_images(), {Counter(&allocations[static_cast<size_t>(context.rank())], num_steps)},
                          {.num_workers = row.workers});
              EXPECT_EQ(model.step(), num_steps);
            },
            {.num_compute_threads = row.threads});
  for (int rank = 0; rank < row.ranks; ++rank) {
    EXPECT_EQ(allocations[static_cast<size_t>(rank)], 0) << "seen by rank " << rank;
  }
}

// The memory for values is that of the largest schedule, known once the step is compiled; training takes no more.
TEST_P(Training, TakesTheMemoryThatWasComputedBeforeTheFirstStep) {
  const Row row = GetParam();
  run_ranks(row.ranks,
            [&](cluster::Context& context) {
              const auto network = make_network(row);
              nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
              nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
              train::Model model(context, *network, &loss, &optimizer, options_of(row));
              const auto dataset = random_images().take(4);
              model.build(dataset);
              const int64_t computed = model.session().arena_bytes();
              EXPECT_GT(computed, 0);
              model.train(1, dataset, {}, {.num_workers = row.workers});
              EXPECT_EQ(model.session().arena_bytes(), computed);
              EXPECT_LE(model.train_executable()->compiled().schedule.arena_bytes, computed);
            },
            {.num_compute_threads = row.threads});
}

INSTANTIATE_TEST_SUITE_P(Networks, Training,
                         testing::Values(Row{"lenet5", 1, 1, 0}, Row{"lenet5", 1, 1, 1}, Row{"lenet5", 1, 2, 1},
                                         Row{"lenet5", 2, 1, 1}, Row{"batch_norm", 1, 1, 1}, Row{"batch_norm", 2, 1, 1},
                                         Row{"batch_norm", 3, 2, 2},
                                         Row{"batch_norm", 2, 1, 1, train::ParallelMode::kHybrid},
                                         Row{"batch_norm", 2, 1, 1, train::ParallelMode::kSemiAuto},
                                         Row{"batch_norm", 1, 1, 1, train::ParallelMode::kStandAlone, 4},
                                         Row{"batch_norm", 2, 1, 1, train::ParallelMode::kDataParallel, 4}),
                         [](const auto& info) { return name_of(info.param); });

std::set<std::string> threads_of_this_process() {
  std::set<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ids.insert(entry.path().filename());
  return ids;
}

// Without oneDNN's convolutions and products: how many threads those take, it decides for each CPU.
class LoopsNetwork : public nn::Cell {
 public:
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    x = ops::reduce_mean(ops::relu(norm_(x)), {2, 3});
    return ops::concat({x, x, x, x}, 1);
  }

 private:
  nn::BatchNorm2d& norm_ = child<nn::BatchNorm2d>("norm", 3);
};

// An OpenMP team that shrinks ends threads, which the next larger one starts anew.
TEST(Threads, AStepStartsNone) {
  run_ranks(1,
            [&](cluster::Context& context) {
              LoopsNetwork network;
              nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
              nn::Momentum optimizer({.learning_rate = 0.01, .momentum = 0.9});
              train::Model model(context, network, &loss, &optimizer);
              const std::vector<Tensor> columns = random_images().batches({}).next().value();
              const std::vector<TensorView> batch{columns[0].view(), columns[1].view()};
              model.train_step(batch, kBatch);
              const auto threads = threads_of_this_process();
              for (int i = 0; i < 5; ++i) model.train_step(batch, kBatch);
              EXPECT_EQ(threads_of_this_process(), threads);
            },
            {.num_compute_threads = 5});
}

TEST(Watching, TheCoresAllocatesNothing) {
  FakeClock clock;
  ThreadTimes times;
  CoreWatch watch(clock, [&] {
    times = thread_times().value_or(ThreadTimes{});
    return std::optional(ThreadTimes{.running_ns = times.running_ns, .waiting_ns = 0});  // never busy
  });
  watch.look();
  const int64_t before = num_mallocs();
  for (int i = 0; i < 20; ++i) {
    clock.sleep_ms(1000);
    watch.look();
  }
  EXPECT_EQ(num_mallocs() - before, 0);
}

// A session on a busy machine would start threads.
[[maybe_unused]] const bool waiting_is_ours = setenv("OMP_WAIT_POLICY", "passive", 0) == 0;

TEST(Counting, SeesAnAllocation) {
  const int64_t before = num_mallocs();
  const auto made = std::make_unique<std::vector<int>>(1000);
  EXPECT_GE(num_mallocs() - before, 2) << made->size();
}

}  // namespace
}  // namespace tessera::allocation
