// The equivalence matrix: the losses of ten steps under a plan equal those of one device on the same global batch, in
// float64 on reference kernels to 1e-10, and in float32 on the fast ones as closely as is written in each row.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <mutex>

#include "tessera/base/random.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/full.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

struct Row {
  const char* network;
  int ranks;
  int64_t batch;
  double float32_deviation = 1e-5;
  double learning_rate = 0.05;
};

std::unique_ptr<nn::Cell> make_network(const std::string& name, DType dtype) {
  auto network = name == "resnet50"
                     ? nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual, .zero_last_gamma = true})
                 : name == "lenet5" ? nn::lenet5(10)
                                    : nn::mlp(10, 3 * 32 * 32, 32);
  for (nn::Parameter* p : network->parameters()) p->type.dtype = dtype;
  return network;
}

// Images with a class-dependent mean, seeded.
Tensor make_images(int64_t batch, int64_t step, const std::string& network, DType dtype) {
  Shape shape = network == "mlp" ? Shape{batch, 3 * 32 * 32} : Shape{batch, 3, 32, 32};
  Tensor images(DType::kF64, shape);
  const auto values = images.values<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = random_normal({.seed = 7, .stream = 1, .step = static_cast<uint64_t>(step)}, i);
  }
  return images.cast(dtype);
}

Tensor make_labels(int64_t batch, int64_t step) {
  Tensor labels(DType::kI32, Shape{batch});
  const auto values = labels.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<int32_t>(random_below({.seed = 7, .stream = 2, .step = static_cast<uint64_t>(step)}, i, 10));
  }
  return labels;
}

TensorView rows_of(const Tensor& tensor, const mesh::Range& rows) {
  TensorView view = tensor.view();
  view.data =
      static_cast<std::byte*>(view.data) + rows.offset * view.strides[0] * static_cast<int64_t>(size_bytes(view.dtype));
  view.shape[0] = rows.size;
  return view;
}

std::vector<double> losses_of(const Row& row, int ranks, DType dtype, bool reference, int64_t steps) {
  std::vector<double> losses;
  std::mutex mutex;
  run_ranks(ranks, [&](cluster::Context& context) {
    const auto network = make_network(row.network, dtype);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = row.learning_rate, .momentum = 0.9, .weight_decay = 1e-4});
    Model model(context, *network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kDataParallel,
                 .seed = 5,
                 .session = {.reference_kernels = reference, .num_threads = 1}});
    for (int64_t step = 0; step < steps; ++step) {
      const Tensor images = make_images(row.batch, step, row.network, dtype);
      const Tensor labels = make_labels(row.batch, step);
      const auto rows = mesh::balanced_part(row.batch, ranks, context.rank());
      const double value = model.train_step({rows_of(images, rows), rows_of(labels, rows)}, row.batch);
      if (context.rank() == 0) {
        const std::lock_guard lock(mutex);
        losses.push_back(value);
      }
    }
  });
  return losses;
}

// The largest relative difference between the losses on many ranks and on one.
double deviation_of(const Row& row, DType dtype, bool reference) {
  // One device's losses are computed once for all rows of a network and batch.
  static std::map<std::string, std::vector<double>> known;
  auto& one = known[fmt::format("{} {} {}", row.network, row.batch, dtype)];
  if (one.empty()) one = losses_of(row, 1, dtype, reference, 10);
  const auto many = losses_of(row, row.ranks, dtype, reference, 10);
  check_equal(one.size(), size_t{10}, "losses");
  check_equal(many.size(), size_t{10}, "losses");
  double worst = 0;
  for (size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(many[i] - one[i]) / std::abs(one[i]));
  return worst;
}

class Equivalence : public testing::TestWithParam<Row> {};

TEST_P(Equivalence, LossesOfTenStepsEqualOneDeviceInFloat64) {
  const double worst = deviation_of(GetParam(), DType::kF64, true);
  std::cout << "float64: largest relative deviation " << worst << "\n";
  EXPECT_LT(worst, 1e-10);
}

TEST_P(Equivalence, LossesOfTenStepsAreNearOneDeviceInFloat32) {
  const double worst = deviation_of(GetParam(), DType::kF32, false);
  std::cout << "float32: largest relative deviation " << worst << "\n";
  EXPECT_LT(worst, GetParam().float32_deviation);
}

std::vector<Row> rows() {
  std::vector<Row> rows{{"mlp", 2, 16}, {"mlp", 3, 16},   {"mlp", 4, 16},  {"mlp", 8, 16},
                        {"mlp", 8, 5},  {"lenet5", 2, 6}, {"lenet5", 3, 6}};
  // Batch normalisation over a global batch that splits unevenly. At a side of 32 the last stage normalises over the 8
  // values of a batch: rounding grows with each step, the faster the larger the rate.
  for (const int ranks : is_full_test() ? std::vector{2, 3, 4, 8} : std::vector{3}) {
    rows.push_back({"resnet50", ranks, 8, 1e-2, 1e-4});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(DataParallel, Equivalence, testing::ValuesIn(rows()), [](const auto& info) {
  return std::string(info.param.network) + "_on_" + std::to_string(info.param.ranks) + "_batch_" +
         std::to_string(info.param.batch);
});

}  // namespace
}  // namespace tessera::train
