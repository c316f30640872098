#include "tessera/nn/layers/convolution.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

void check_channels(const char* who, int64_t in, int64_t out, int64_t group) {
  if (in >= 1 && out >= 1 && group >= 1 && in % group == 0 && out % group == 0) return;
  throw InvalidArgument("{}: group must divide both numbers of channels, all at least 1; got {} -> {}, group {}", who,
                        in, out, group);
}

// What is given, or even in +-1 / sqrt(fan_in) of a weight of that shape.
Init init_or_even(const std::optional<Init>& given, const Shape& weight) {
  return given ? *given : Init(uniform(1 / std::sqrt(fans_of(weight).in)));
}

// A sequence as an image of one row.
Value as_image(const char* who, const Cell& cell, Value x) {
  if (x.ndim() != 3) {
    throw InvalidArgument("{} \"{}\": takes [n,c,l], got {}", who, ir::cell_name(cell.path()), x.type());
  }
  return ops::expand_dims(x, {2});
}

Padding2 along_row(int64_t padding) { return {0, 0, padding, padding}; }

}  // namespace

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options)
    : window_{options.kernel, options.stride, options.pad_mode, options.padding, options.dilation},
      group_(options.group) {
  check_window(window_, "Conv2d");
  check_channels("Conv2d", in_channels, out_channels, group_);
  check_bias_init("Conv2d", options.has_bias, options.bias_init.has_value());
  const Shape shape{out_channels, in_channels / group_, window_.kernel.height, window_.kernel.width};
  weight_ = &parameter("weight", {DType::kF32, shape}, options.weight_init);
  if (options.has_bias) bias_ = &parameter("bias", {DType::kF32, {out_channels}}, options.bias_init.value_or("zeros"));
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

Conv2dTranspose::Conv2dTranspose(int64_t in_channels, int64_t out_channels, const Conv2dTransposeOptions& options)
    : window_{options.kernel, options.stride, options.pad_mode, options.padding, options.dilation},
      output_padding_(options.output_padding),
      group_(options.group) {
  check_window(window_, "Conv2dTranspose");
  check_channels("Conv2dTranspose", in_channels, out_channels, group_);
  check_bias_init("Conv2dTranspose", options.has_bias, options.bias_init.has_value());
  const auto fits = [&](int64_t more, int64_t stride, int64_t dilation) {
    return more == 0 || (more > 0 && more < std::max(stride, dilation) && window_.pad_mode == "pad");
  };
  if (!fits(output_padding_.height, window_.stride.height, window_.dilation.height) ||
      !fits(output_padding_.width, window_.stride.width, window_.dilation.width)) {
    throw InvalidArgument(
        "Conv2dTranspose: output_padding must be in [0, max(stride, dilation)), and 0 unless pad_mode is \"pad\"; got "
        "{} and {}",
        output_padding_.height, output_padding_.width);
  }
  const Shape shape{in_channels, out_channels / group_, window_.kernel.height, window_.kernel.width};
  weight_ = &parameter("weight", {DType::kF32, shape}, init_or_even(options.weight_init, shape));
  if (options.has_bias) {
    bias_ = &parameter("bias", {DType::kF32, {out_channels}}, init_or_even(options.bias_init, shape));
  }
}

Value Conv2dTranspose::construct(Value x) {
  check_images("conv2d_transpose", x);
  Value result = ops::conv2d_transpose(x, *weight_,
                                       {.stride = window_.stride.to_vector(),
                                        .pad_mode = pad_mode_of(window_.pad_mode),
                                        .padding = window_.padding.to_vector(),
                                        .dilation = window_.dilation.to_vector(),
                                        .groups = group_});
  if (bias_ != nullptr) result = ops::bias_add(result, *bias_);
  if (output_padding_.height == 0 && output_padding_.width == 0) return result;
  return ops::pad(result, {0, 0, 0, 0}, {0, 0, output_padding_.height, output_padding_.width});
}

Conv1d::Conv1d(int64_t in_channels, int64_t out_channels, const Conv1dOptions& options)
    : conv_([&]() -> Conv2d& {
        check_channels("Conv1d", in_channels, out_channels, options.group);
        check_bias_init("Conv1d", options.has_bias, options.bias_init.has_value());
        const Shape shape{out_channels, in_channels / options.group, 1, options.kernel};
        auto conv = std::make_shared<Conv2d>(
            in_channels, out_channels,
            Conv2dOptions{
                .kernel = {1, options.kernel},
                .stride = {1, options.stride},
                .pad_mode = options.pad_mode,
                .padding = along_row(options.padding),
                .dilation = {1, options.dilation},
                .group = options.group,
                .has_bias = options.has_bias,
                .weight_init = init_or_even(options.weight_init, shape),
                .bias_init = options.has_bias ? std::optional(init_or_even(options.bias_init, shape)) : std::nullopt});
        adopt("conv2d", conv, /*is_in_path=*/false);
        return *conv;
      }()) {}

Value Conv1d::construct(Value x) { return ops::squeeze(conv_(as_image("Conv1d", *this, x)), {2}); }

Conv1dTranspose::Conv1dTranspose(int64_t in_channels, int64_t out_channels, const Conv1dOptions& options)
    : conv_([&]() -> Conv2dTranspose& {
        check_bias_init("Conv1dTranspose", options.has_bias, options.bias_init.has_value());
        auto conv = std::make_shared<Conv2dTranspose>(in_channels, out_channels,
                                                      Conv2dTransposeOptions{.kernel = {1, options.kernel},
                                                                             .stride = {1, options.stride},
                                                                             .pad_mode = options.pad_mode,
                                                                             .padding = along_row(options.padding),
                                                                             .dilation = {1, options.dilation},
                                                                             .group = options.group,
                                                                             .has_bias = options.has_bias,
                                                                             .weight_init = options.weight_init,
                                                                             .bias_init = options.bias_init});
        adopt("conv2d_transpose", conv, /*is_in_path=*/false);
        return *conv;
      }()) {}

Value Conv1dTranspose::construct(Value x) { return ops::squeeze(conv_(as_image("Conv1dTranspose", *this, x)), {2}); }

}  // namespace tessera::nn
