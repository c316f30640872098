// Layers of learned filters: Conv2d over images, Conv1d over sequences, and their transposes, which make more of less.
#pragma once

#include <optional>

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/window.h"

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
  std::optional<Init> bias_init = std::nullopt;  // absent: zeros; refused where there is no bias
};

// x f32[n, in_channels, h, w] -> f32[n, out_channels, h', w'].
// Parameters: weight [out_channels, in_channels / group, kh, kw], and bias [out_channels] if has_bias.
class Conv2d : public Cell {
 public:
  using Options = Conv2dOptions;
  // Throws InvalidArgument for sizes below 1 and channels that `group` does not divide, and a bias_init without a bias.
  Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Window window_;
  int64_t group_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

struct Conv1dOptions {
  int64_t kernel = 1;
  int64_t stride = 1;
  std::string pad_mode = "same";  // see Window
  int64_t padding = 0;            // on both sides, with "pad"
  int64_t dilation = 1;
  int64_t group = 1;
  bool has_bias = false;
  // Absent: even in +-1 / sqrt(fan_in), of weight and bias alike.
  std::optional<Init> weight_init = std::nullopt;
  std::optional<Init> bias_init = std::nullopt;
};

// x f32[n, in_channels, l] -> f32[n, out_channels, l'].
// Parameters: weight [out_channels, in_channels / group, 1, kernel], and bias [out_channels] if has_bias.
class Conv1d : public Cell {
 public:
  using Options = Conv1dOptions;
  // Throws InvalidArgument for sizes below 1 and channels that `group` does not divide, and a bias_init without a bias.
  Conv1d(int64_t in_channels, int64_t out_channels, const Conv1dOptions& options);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Conv2d& conv_;
};

struct Conv2dTransposeOptions {
  Size2 kernel;
  Size2 stride = 1;
  std::string pad_mode = "same";  // that of the convolution of which this is the transpose, see Window
  Padding2 padding = 0;
  Size2 output_padding = 0;  // rows and columns of zeros behind the result; with "pad", below max(stride, dilation)
  Size2 dilation = 1;
  int64_t group = 1;
  bool has_bias = false;
  // Absent: even in +-1 / sqrt(fan_in), of weight and bias alike.
  std::optional<Init> weight_init = std::nullopt;
  std::optional<Init> bias_init = std::nullopt;
};

// The transpose of a convolution: x f32[n, in_channels, h, w] -> f32[n, out_channels, h', w'], h' = h stride with
// "same", h stride + max(reach - stride, 0) with "valid", h stride + reach - stride - padding with "pad", reach being
// dilation (kernel - 1) + 1; Zeiler et al., "Deconvolutional networks", 2010.
// Parameters: weight [in_channels, out_channels / group, kh, kw], and bias [out_channels] if has_bias.
class Conv2dTranspose : public Cell {
 public:
  using Options = Conv2dTransposeOptions;
  // Throws InvalidArgument for sizes below 1, channels that `group` does not divide, an output_padding that is too
  // large or not with "pad", and a bias_init without a bias.
  Conv2dTranspose(int64_t in_channels, int64_t out_channels, const Conv2dTransposeOptions& options);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Window window_;
  Size2 output_padding_;
  int64_t group_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// The same of sequences: x f32[n, in_channels, l] -> f32[n, out_channels, l'].
// Parameters: weight [in_channels, out_channels / group, 1, kernel], and bias [out_channels] if has_bias.
class Conv1dTranspose : public Cell {
 public:
  using Options = Conv1dOptions;
  Conv1dTranspose(int64_t in_channels, int64_t out_channels, const Conv1dOptions& options);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Conv2dTranspose& conv_;
};

}  // namespace tessera::nn
