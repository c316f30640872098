#include "tessera/nn/convolution.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"

namespace tessera::nn {

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options)
    : window_{options.kernel, options.stride, options.pad_mode, options.padding, options.dilation},
      group_(options.group) {
  check_window(window_, "Conv2d");
  if (in_channels < 1 || out_channels < 1 || group_ < 1 || in_channels % group_ != 0 || out_channels % group_ != 0) {
    throw InvalidArgument("Conv2d: group must divide both numbers of channels, all at least 1; got {} -> {}, group {}",
                          in_channels, out_channels, group_);
  }
  const Shape shape{out_channels, in_channels / group_, window_.kernel.height, window_.kernel.width};
  weight_ = &parameter("weight", {DType::kF32, shape}, options.weight_init);
  if (options.has_bias) bias_ = &parameter("bias", {DType::kF32, {out_channels}}, options.bias_init);
}

Value Conv2d::construct(Value x) {
  check_images("conv2d", x);
  const Value result = ops::conv2d(x, *weight_,
                                   {.stride = window_.stride.to_vector(),
                                    .pad_mode = pad_mode_of(window_.pad_mode),
                                    .padding = window_.padding.to_vector(),
                                    .dilation = window_.dilation.to_vector(),
                                    .groups = group_});
  return bias_ == nullptr ? result : ops::bias_add(result, *bias_);
}

}  // namespace tessera::nn
