#include "tessera/nn/models/small.h"

#include "tessera/nn/container.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/pooling.h"
#include "tessera/ops/functions/elementwise_functions.h"

namespace tessera::nn {
namespace {

class LeNet5 : public Cell {
 public:
  LeNet5(int64_t num_classes, int64_t image_channels)
      : conv1_(child<Conv2d>("conv1", image_channels, 6, kConv)),
        conv2_(child<Conv2d>("conv2", 6, 16, kConv)),
        pool_(child<MaxPool2d>("pool", Pool2dOptions{.kernel = 2, .stride = 2})),
        flatten_(child<Flatten>("flatten")),
        fc1_(child<Dense>("fc1", 16 * 5 * 5, 120, kDense)),
        fc2_(child<Dense>("fc2", 120, 84, kDense)),
        fc3_(child<Dense>("fc3", 84, num_classes, DenseOptions{.weight_init = "xavier_uniform"})) {}
  using Cell::construct;
  Value construct(Value x) override {
    x = pool_(ops::relu(conv1_(x)));
    x = pool_(ops::relu(conv2_(x)));
    return fc3_(fc2_(fc1_(flatten_(x))));
  }

 private:
  inline static const Conv2dOptions kConv{.kernel = 5, .pad_mode = "valid", .weight_init = "xavier_uniform"};
  inline static const DenseOptions kDense{.weight_init = "xavier_uniform", .activation = "relu"};
  Conv2d& conv1_;
  Conv2d& conv2_;
  MaxPool2d& pool_;
  Flatten& flatten_;
  Dense& fc1_;
  Dense& fc2_;
  Dense& fc3_;
};

class Mlp : public Cell {
 public:
  Mlp(int64_t num_classes, int64_t in_features, int64_t hidden_features)
      : up_(child<Dense>("up", in_features, hidden_features, DenseOptions{.weight_init = "xavier_uniform"})),
        down_(child<Dense>("down", hidden_features, num_classes, DenseOptions{.weight_init = "xavier_uniform"})) {}
  using Cell::construct;
  Value construct(Value x) override { return down_(ops::relu(up_(x))); }

 private:
  Dense& up_;
  Dense& down_;
};

}  // namespace

std::unique_ptr<Cell> lenet5(int64_t num_classes, int64_t image_channels) {
  return std::make_unique<LeNet5>(num_classes, image_channels);
}

std::unique_ptr<Cell> mlp(int64_t num_classes, int64_t in_features, int64_t hidden_features) {
  return std::make_unique<Mlp>(num_classes, in_features, hidden_features);
}

}  // namespace tessera::nn
