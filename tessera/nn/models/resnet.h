// ResNet-50 (He et al., "Deep residual learning", CVPR 2016) as the tutorials' sample builds it: the stride of a block
// stands on its first, 1x1 convolution; blocks of a stage are named by letters.
#pragma once

#include <memory>

#include "tessera/nn/cell.h"

namespace tessera::nn {

enum class InitialValues {
  // The tutorials': convolutions and fc xavier_uniform, gamma and fc.bias even in +-0.07. Where gamma is that small,
  // the first logits are nearly 0, the first loss nearly ln(num_classes).
  kReference,
  // Image networks usually start from these: convolutions he_normal, gamma 1, fc even in +-1/sqrt(2048).
  kUsual
};

struct ResNetOptions {
  int64_t image_channels = 3;
  InitialValues initial_values = InitialValues::kReference;
  double batch_norm_momentum = 0.99;
  // Each residual branch starts at zero (Goyal et al., "Accurate, large minibatch SGD", 2017): the network starts
  // shallow, which stands a large learning rate from the first steps.
  bool zero_last_gamma = false;
};

// x f32[n,image_channels,h,w] -> logits f32[n,num_classes]; any h, w >= 1: 32x32 ends in 1x1 features, 224x224 in 7x7.
// Parameters: head.conv1.weight, head.bn1.*, layer1.a.conv1.weight, ..., layer1.a.conv_down_sample.weight, fc.weight,
// fc.bias; 3, 4, 6 and 3 blocks in layer1 to layer4.
std::unique_ptr<Cell> resnet50(int64_t num_classes, const ResNetOptions& options = {});

}  // namespace tessera::nn
