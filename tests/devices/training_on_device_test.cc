// Training on the fake device gives the bits of training on the CPU: losses, parameters and states, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "tessera/base/logging.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tests/devices/shared_fake.h"
#include "tests/equivalence/networks.h"

namespace tessera::devices {
namespace {

struct Training {
  std::string name;
  std::string network = "mlp";
  int ranks = 1;
  train::ModelOptions options = {};
  // By path of a cell and operator.
  std::vector<std::tuple<std::string, std::string, mesh::Strategy>> strategies = {};
  DType dtype = DType::kF32;
  int64_t rows = 8;
  int64_t steps = 10;
  bool plain_loops = false;
  // Operators that the device has no kernels for, in that dtype where there is one: the host computes them. "all" are
  // all but copies.
  std::set<std::string> lacks = {};
  std::optional<DType> lacks_dtype = {};
};

void shard(nn::Cell& cell, const Training& training) {
  for (const auto& [path, op, strategy] : training.strategies) {
    if (cell.path() == path) cell.shard(op, strategy);
  }
  for (const auto& [name, child] : cell.children()) shard(*child, training);
}

// The kernels of the device without those that it lacks.
KernelRegistry without_lacking(const kernels::Backend& backend, const Training& training) {
  const auto ops = backend.registries[0]->ops();
  for (const std::string& op : training.lacks) check(op == "all" || std::ranges::count(ops, op) == 1, op.c_str());
  return some_kernels(backend, [training](const KernelRequest& request) {
    const auto& dtype = training.lacks_dtype;
    const bool is_of_dtype = !dtype || std::ranges::count(request.inputs, *dtype, &TensorView::dtype) > 0;
    return !is_of_dtype || (!training.lacks.contains("all") && !training.lacks.contains(request.op));
  });
}

// What rank 0 has seen.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, Tensor> values;
};

// Where no device is given, on the CPU.
Outcome train(const Training& training, FakeDevice* device, DeviceCommunicators* communicators = nullptr,
              DeviceCommunicators* within_device = nullptr) {
  Outcome outcome;
  std::mutex mutex;
  const auto on_cpu = training.plain_loops ? kernels::reference_backend() : kernels::cpu_backend();
  auto backend = device != nullptr ? fake_backend(*device, training.plain_loops, communicators) : on_cpu;
  backend.within_device = within_device;
  KernelRegistry lacking;
  if (device != nullptr && !training.lacks.empty()) {
    lacking = without_lacking(backend, training);
    backend.registries = {&lacking};
  }
  run_ranks(training.ranks, [&](cluster::Context& context) {
    const auto network = equivalence::make_network(training.network, training.dtype);
    shard(*network, training);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4});
    auto options = training.options;
    options.seed = 5;
    options.session.num_threads = 1;
    options.session.backend = &backend;
    options.session.cpu_fallback = !training.lacks.empty();
    train::Model model(context, *network, &loss, &optimizer, options);
    for (int64_t step = 0; step < training.steps; ++step) {
      const auto batch = equivalence::make_batch(training.network, training.rows, step, training.dtype);
      const bool takes_rows = options.parallel_mode == train::ParallelMode::kDataParallel;
      const auto rows =
          mesh::balanced_part(training.rows, takes_rows ? training.ranks : 1, takes_rows ? context.rank() : 0);
      const auto rows_of = [&](const Tensor& tensor) {
        std::vector<mesh::Range> slice = {rows};
        for (int dim = 1; dim < tensor.ndim(); ++dim) slice.push_back({0, tensor.shape()[dim]});
        return mesh::piece_of(tensor.view(), slice);
      };
      const double value = model.train_step({rows_of(batch[0]), rows_of(batch[1])}, training.rows);
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) outcome.losses.push_back(value);
    }
    for (const auto& name : model.names()) {
      const auto value = model.value(name);
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) outcome.values[name] = value;
    }
  });
  return outcome;
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Training& training, std::ostream* out) { *out << training.name; }

class TrainingOnDevice : public testing::TestWithParam<Training> {
 protected:
  // What the host computes is said for each operator: that is looked at elsewhere.
  TrainingOnDevice() { set_log_level(GetParam().lacks.empty() ? LogLevel::kWarning : LogLevel::kError); }
  ~TrainingOnDevice() override { set_log_level(LogLevel::kWarning); }
};

TEST_P(TrainingOnDevice, GivesTheBitsOfTheCpu) {
  const auto on_cpu = train(GetParam(), nullptr);
  FakeDevice device(/*seed=*/7);
  const auto on_device = train(GetParam(), &device);
  if (GetParam().lacks.empty()) {
    EXPECT_GT(device.num_kernels(), 10 * GetParam().steps);
  }
  EXPECT_EQ(on_device.losses, on_cpu.losses);
  ASSERT_EQ(on_device.values.size(), on_cpu.values.size());
  for (const auto& [name, value] : on_cpu.values) EXPECT_TRUE(bit_equal(on_device.values.at(name), value)) << name;
}

class TrainingOnSeveralDevices : public TrainingOnDevice {};

TEST_P(TrainingOnSeveralDevices, GivesTheBitsOfTheCpuWhereDevicesCommunicate) {
  const auto on_cpu = train(GetParam(), nullptr);
  FakeDevice device(/*seed=*/7);
  FakeCommunicators communicators;
  const auto on_devices = train(GetParam(), &device, &communicators);
  EXPECT_GT(communicators.num_calls(), 0);
  EXPECT_EQ(on_devices.losses, on_cpu.losses);
  ASSERT_EQ(on_devices.values.size(), on_cpu.values.size());
  for (const auto& [name, value] : on_cpu.values) EXPECT_TRUE(bit_equal(on_devices.values.at(name), value)) << name;
}

TEST_P(TrainingOnSeveralDevices, GivesTheBitsOfTheCpuWhereRanksShareADevice) {
  const auto on_cpu = train(GetParam(), nullptr);
  SharedFake fake(/*seed=*/7);
  const auto on_device = train(GetParam(), &fake.device, nullptr, &fake.shared);
  EXPECT_GT(fake.shared.num_calls(), 0);
  EXPECT_EQ(on_device.losses, on_cpu.losses);
  ASSERT_EQ(on_device.values.size(), on_cpu.values.size());
  for (const auto& [name, value] : on_cpu.values) EXPECT_TRUE(bit_equal(on_device.values.at(name), value)) << name;
}

std::vector<Training> trainings() {
  using Mode = train::ParallelMode;
  std::vector<Training> rows;
  for (const char* network : {"mlp", "resnet", "transformer", "recurrent", "translator"}) {
    const std::string name = network;
    rows.push_back({.name = name, .network = network});
    rows.push_back({.name = name + "_debugged", .network = network, .options = {.session = {.debug = true}}});
    rows.push_back({.name = name + "_in_plain_loops", .network = network, .dtype = DType::kF64, .plain_loops = true});
    rows.push_back(
        {.name = name + "_data_2", .network = network, .ranks = 2, .options = {.parallel_mode = Mode::kDataParallel}});
    rows.push_back(
        {.name = name + "_data_3_optimizer_shards_uneven",
         .network = network,
         .ranks = 3,
         .options = {.parallel_mode = Mode::kSemiAuto, .parallel_optimizer = true, .parallel_optimizer_threshold = 0},
         .rows = 7});
  }
  for (const char* network : {"mlp", "transformer"}) {
    const std::string name = network;
    rows.push_back({.name = name + "_accumulated", .network = network, .options = {.gradient_accumulation_steps = 2}});
    rows.push_back({.name = name + "_f16", .network = network, .options = {.precision = DType::kF16}});
    rows.push_back({.name = name + "_bf16", .network = network, .options = {.precision = DType::kBF16}});
    rows.push_back({.name = name + "_f16_data_2",
                    .network = network,
                    .ranks = 2,
                    .options = {.parallel_mode = Mode::kDataParallel, .precision = DType::kF16}});
    rows.push_back({.name = name + "_accumulated_data_2",
                    .network = network,
                    .ranks = 2,
                    .options = {.parallel_mode = Mode::kDataParallel, .gradient_accumulation_steps = 5}});
    rows.push_back({.name = name + "_data_2_model_2",
                    .network = network,
                    .ranks = 4,
                    .options = {.parallel_mode = Mode::kSemiAuto},
                    .strategies = {{"up", "matmul", {{2, 1}, {2, 1}}}, {"down", "matmul", {{2, 2}, {1, 2}}}}});
    rows.push_back(
        {.name = name + "_searched",
         .network = network,
         .ranks = 2,
         .options = {.parallel_mode = Mode::kAutomatic, .automatic = {.profile = compiler::example_profile()}}});
    rows.push_back({.name = name + "_within_a_limit",
                    .network = network,
                    .options = {.session = {.memory_limit_bytes = int64_t{1} << 30}}});
  }
  rows.push_back({.name = "resnet_split_width",
                  .network = "resnet",
                  .ranks = 4,
                  .options = {.parallel_mode = Mode::kSemiAuto, .dataset_strategy = {{1, 1, 1, 4}, {1}}},
                  .strategies = {{"stem", "conv2d", {{1, 1, 1, 4}, {1, 1, 1, 1}}},
                                 {"bn", "batch_norm", {{1, 1, 1, 4}, {1}, {1}, {1}, {1}}}}});
  rows.push_back({.name = "transformer_split_vocabulary",
                  .network = "transformer",
                  .ranks = 4,
                  .options = {.parallel_mode = Mode::kSemiAuto},
                  .strategies = {{"embedding", "gather", {{4, 1}, {1, 1}}}, {"head", "matmul", {{1, 1}, {4, 1}}}}});
  return rows;
}

// Forward, gradients, updates, and all of them by the host beside the device.
std::vector<Training> trainings_with_fallback() {
  using Mode = train::ParallelMode;
  const std::set<std::string> forward = {"matmul", "batch_matmul", "conv2d",
                                         "gather", "attention",    "softmax_cross_entropy"};
  const std::set<std::string> gradients = {"conv2d_grad_weight", "conv2d_grad_input", "scatter_add",
                                           "attention_grad",     "layer_norm_grad",   "softmax_cross_entropy_grad"};
  const std::set<std::string> updates = {"momentum", "update_group"};
  std::vector<Training> rows;
  for (const char* network : {"mlp", "resnet", "transformer", "recurrent"}) {
    const std::string name = network;
    for (const int ranks : {1, 2}) {
      const auto end = ranks == 1 ? std::string() : "_data_2";
      const train::ModelOptions options{.parallel_mode = ranks == 1 ? Mode::kStandAlone : Mode::kDataParallel};
      const auto add = [&](const std::string& what, const std::set<std::string>& lacks) {
        rows.push_back({.name = name + "_" + what + end,
                        .network = network,
                        .ranks = ranks,
                        .options = options,
                        .steps = 5,
                        .lacks = lacks});
      };
      add("without_forward", forward);
      add("without_gradients", gradients);
      add("without_updates", updates);
      add("without_anything", {"all"});
    }
  }
  // Steps that are skipped for their gradients: a guard that the host looks at.
  rows.push_back({.name = "mlp_f16_without_updates",
                  .options = {.precision = DType::kF16, .loss_scale = nn::dynamic_loss_scale()},
                  .lacks = updates});
  rows.push_back({.name = "mlp_f16_without_anything_data_2",
                  .ranks = 2,
                  .options = {.parallel_mode = Mode::kDataParallel, .precision = DType::kF16},
                  .steps = 5,
                  .lacks = {"all"}});
  rows.push_back({.name = "transformer_bf16_without_half_types",
                  .network = "transformer",
                  .options = {.precision = DType::kBF16},
                  .steps = 5,
                  .lacks = {"all"},
                  .lacks_dtype = DType::kBF16});
  rows.push_back(
      {.name = "mlp_debugged_without_anything", .options = {.session = {.debug = true}}, .steps = 5, .lacks = {"all"}});
  rows.push_back({.name = "transformer_accumulated_without_updates",
                  .network = "transformer",
                  .options = {.gradient_accumulation_steps = 2},
                  .lacks = updates});
  rows.push_back({.name = "mlp_data_2_model_2_without_forward",
                  .ranks = 4,
                  .options = {.parallel_mode = Mode::kSemiAuto},
                  .strategies = {{"up", "matmul", {{2, 1}, {2, 1}}}, {"down", "matmul", {{2, 2}, {1, 2}}}},
                  .steps = 5,
                  .lacks = forward});
  return rows;
}

std::vector<Training> of_several_ranks(std::vector<Training> rows) {
  std::erase_if(rows, [](const Training& row) { return row.ranks == 1; });
  return rows;
}

INSTANTIATE_TEST_SUITE_P(WithFallback, TrainingOnDevice, testing::ValuesIn(trainings_with_fallback()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Matrix, TrainingOnSeveralDevices, testing::ValuesIn(of_several_ranks(trainings())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(WithFallback, TrainingOnSeveralDevices,
                         testing::ValuesIn(of_several_ranks(trainings_with_fallback())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Matrix, TrainingOnDevice, testing::ValuesIn(trainings()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::devices
