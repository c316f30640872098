// Small networks: LeNet-5 and a two-layer perceptron, for tests, examples and a first look at a graph.
#pragma once

#include <memory>

#include "tessera/nn/cell.h"

namespace tessera::nn {

// LeNet-5 (LeCun et al., "Gradient-based learning applied to document recognition", 1998) with rectifiers and maximum
// pooling. x f32[n,image_channels,32,32] -> logits f32[n,num_classes].
// Parameters: conv1.weight, conv2.weight, fc1.*, fc2.*, fc3.*.
std::unique_ptr<Cell> lenet5(int64_t num_classes, int64_t image_channels = 3);

// x f32[n,in_features] -> logits f32[n,num_classes]. Parameters: up.weight, up.bias, down.weight, down.bias.
std::unique_ptr<Cell> mlp(int64_t num_classes, int64_t in_features = 64, int64_t hidden_features = 256);

}  // namespace tessera::nn
