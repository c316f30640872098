#include "tessera/nn/models/resnet.h"

#include <cmath>

#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/layers/pooling.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

// Channels that leave a block per channel of its 3x3 convolution.
constexpr int64_t kExpansion = 4;

struct Style {
  Init conv = "xavier_uniform";
  Init gamma = "uniform";
  Init last_gamma = "uniform";  // of a block's residual branch
  Init fc_weight = "xavier_uniform";
  Init fc_bias = "uniform";
  double momentum = 0.99;
};

Style style_of(const ResNetOptions& options, int64_t features) {
  Style style{.momentum = options.batch_norm_momentum};
  if (options.initial_values == InitialValues::kUsual) {
    const auto fc = uniform(1 / std::sqrt(static_cast<double>(features)));
    style.conv = he_normal();
    style.gamma = ones();
    style.last_gamma = ones();
    style.fc_weight = fc;
    style.fc_bias = fc;
  }
  if (options.zero_last_gamma) style.last_gamma = zeros();
  return style;
}

Conv2dOptions conv_options(const Style& style, int64_t kernel, int64_t stride) {
  return {.kernel = kernel, .stride = stride, .pad_mode = "same", .weight_init = style.conv};
}

BatchNorm2dOptions norm_options(const Style& style) { return {.momentum = style.momentum, .gamma_init = style.gamma}; }
BatchNorm2dOptions last_norm_options(const Style& style) {
  return {.momentum = style.momentum, .gamma_init = style.last_gamma};
}

// 7x7 convolution and 3x3 maximum, both with stride 2: a quarter of height and width is left.
class Head : public Cell {
 public:
  Head(const Style& style, int64_t image_channels)
      : conv1_(child<Conv2d>("conv1", image_channels, 64, conv_options(style, 7, 2))),
        bn1_(child<BatchNorm2d>("bn1", 64, norm_options(style))),
        max_pool_(child<MaxPool2d>("maxpool", Pool2dOptions{.kernel = 3, .stride = 2, .pad_mode = "same"})) {}
  using Cell::construct;
  Value construct(Value x) override { return max_pool_(ops::relu(bn1_(conv1_(x)))); }

 private:
  Conv2d& conv1_;
  BatchNorm2d& bn1_;
  MaxPool2d& max_pool_;
};

// 1x1, 3x3 and 1x1 convolution around a shortcut. The first block of a stage changes the number of channels, so that
// its shortcut is a convolution too.
class Block : public Cell {
 public:
  Block(const Style& style, int64_t in_channels, int64_t out_channels, int64_t stride, bool has_down_sample)
      : conv1_(child<Conv2d>("conv1", in_channels, out_channels / kExpansion, conv_options(style, 1, stride))),
        bn1_(child<BatchNorm2d>("bn1", out_channels / kExpansion, norm_options(style))),
        conv2_(child<Conv2d>("conv2", out_channels / kExpansion, out_channels / kExpansion, conv_options(style, 3, 1))),
        bn2_(child<BatchNorm2d>("bn2", out_channels / kExpansion, norm_options(style))),
        conv3_(child<Conv2d>("conv3", out_channels / kExpansion, out_channels, conv_options(style, 1, 1))),
        bn3_(child<BatchNorm2d>("bn3", out_channels, last_norm_options(style))) {
    if (!has_down_sample) return;
    conv_down_sample_ = &child<Conv2d>("conv_down_sample", in_channels, out_channels, conv_options(style, 1, stride));
    bn_down_sample_ = &child<BatchNorm2d>("bn_down_sample", out_channels, norm_options(style));
  }
  using Cell::construct;
  Value construct(Value x) override {
    Value result = ops::relu(bn1_(conv1_(x)));
    result = ops::relu(bn2_(conv2_(result)));
    result = bn3_(conv3_(result));
    const Value shortcut = conv_down_sample_ == nullptr ? x : (*bn_down_sample_)((*conv_down_sample_)(x));
    return ops::relu(result + shortcut);
  }

 private:
  Conv2d& conv1_;
  BatchNorm2d& bn1_;
  Conv2d& conv2_;
  BatchNorm2d& bn2_;
  Conv2d& conv3_;
  BatchNorm2d& bn3_;
  Conv2d* conv_down_sample_ = nullptr;
  BatchNorm2d* bn_down_sample_ = nullptr;
};

// Blocks "a", "b", ...; the first one carries the stride.
class Stage : public Cell {
 public:
  Stage(const Style& style, int num_blocks, int64_t in_channels, int64_t out_channels, int64_t stride) {
    for (int i = 0; i < num_blocks; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      blocks_.push_back(&child<Block>(name, style, i == 0 ? in_channels : out_channels, out_channels,
                                      i == 0 ? stride : 1, /*has_down_sample=*/i == 0));
    }
  }
  using Cell::construct;
  Value construct(Value x) override {
    for (Block* block : blocks_) x = (*block)(x);
    return x;
  }

 private:
  std::vector<Block*> blocks_;
};

class ResNet50 : public Cell {
 public:
  ResNet50(int64_t num_classes, const Style& style, int64_t image_channels)
      : head_(child<Head>("head", style, image_channels)),
        layer1_(child<Stage>("layer1", style, 3, 64, 256, 1)),
        layer2_(child<Stage>("layer2", style, 4, 256, 512, 2)),
        layer3_(child<Stage>("layer3", style, 6, 512, 1024, 2)),
        layer4_(child<Stage>("layer4", style, 3, 1024, 2048, 2)),
        fc_(child<Dense>("fc", 2048, num_classes,
                         DenseOptions{.weight_init = style.fc_weight, .bias_init = style.fc_bias})) {}
  using Cell::construct;
  Value construct(Value x) override {
    x = layer4_(layer3_(layer2_(layer1_(head_(x)))));
    return fc_(ops::squeeze(ops::reduce_mean(x, {2, 3}, /*keep_dims=*/true), {2, 3}));
  }

 private:
  Head& head_;
  Stage& layer1_;
  Stage& layer2_;
  Stage& layer3_;
  Stage& layer4_;
  Dense& fc_;
};

}  // namespace

std::unique_ptr<Cell> resnet50(int64_t num_classes, const ResNetOptions& options) {
  return std::make_unique<ResNet50>(num_classes, style_of(options, 2048), options.image_channels);
}

}  // namespace tessera::nn
