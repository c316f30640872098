// Conv2d: a layer of learned filters over images.
#pragma once

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/window.h"

namespace tessera::nn {

struct Conv2dOptions {
  Size2 kernel;
  Size2 stride = 1;
  std::string pad_mode = "same";  // see Window
  Padding2 padding = 0;
  Size2 dilation = 1;
  int64_t group = 1;
  bool has_bias = false;
  Init weight_init = "normal";
  Init bias_init = "zeros";
};

// x f32[n, in_channels, h, w] -> f32[n, out_channels, h', w'].
// Parameters: weight [out_channels, in_channels / group, kh, kw], and bias [out_channels] if has_bias.
class Conv2d : public Cell {
 public:
  using Options = Conv2dOptions;
  // Throws InvalidArgument for sizes below 1 and channels that `group` does not divide.
  Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Window window_;
  int64_t group_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace tessera::nn
