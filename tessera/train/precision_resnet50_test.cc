// ResNet-50 in half types: the mean of its losses over a training is that in float32.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "tessera/base/random.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/full.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr int64_t kBatch = 16;
constexpr int64_t kSide = 32;

// A hundred steps; in a sample of the suite the first of them.
int64_t num_steps() { return is_full_test() ? 100 : 25; }

// Each class has a brightness of its own in each colour.
Tensor images(int64_t number) {
  Tensor tensor(DType::kF32, {kBatch, 3, kSide, kSide});
  const auto values = tensor.values<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t plane = i / (kSide * kSide);
    const uint64_t image_class = plane / 3 % 10;
    const double mean = random_normal({.seed = 5, .stream = 1}, image_class * 3 + plane % 3);
    values[i] = static_cast<float>(mean + random_normal({.seed = 5, .step = static_cast<uint64_t>(number)}, i));
  }
  return tensor;
}

std::vector<double> losses_of(const ModelOptions& options) {
  const auto context = cluster::single_context(1);
  const auto network = nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual, .zero_last_gamma = true});
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.002, .momentum = 0.9});
  Model model(*context, *network, &loss, &optimizer, options);
  Tensor labels(DType::kI32, {kBatch});
  for (int64_t i = 0; i < kBatch; ++i) labels.values<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 10);
  std::vector<double> losses;
  for (int64_t step = 0; step < num_steps(); ++step) {
    const Tensor batch = images(step);
    losses.push_back(model.train_step({batch.view(), labels.view()}, kBatch));
  }
  return losses;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST(ResNet50Precision, LossesAreWithinTwoPercentOfFloat32) {
  const auto wide = losses_of({});
  EXPECT_LT(wide.back(), wide.front() / 2);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    // The dynamic scale of f16 begins where no step overflows: one that is skipped would set the losses a step apart.
    const auto low = losses_of({.precision = dtype, .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024})});
    const double deviation = mean(low) / mean(wide) - 1;
    std::cout << to_string(dtype) << ": mean of the losses " << mean(low) << ", in float32 " << mean(wide)
              << ", off by " << deviation << "; the first " << low.front() << " and " << wide.front() << ", the last "
              << low.back() << " and " << wide.back() << "\n";
    EXPECT_LT(std::abs(deviation), 0.02);
  }
}

}  // namespace
}  // namespace tessera::train
