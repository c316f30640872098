// The loops of batch normalisation over channels-last images: rows of one pixel's channels, neighbours in memory.
// Vectorised for the best instruction set at run time; images are f32, bf16 or f16, what is per channel is f32.
#pragma once

#include <cstdint>

#include "tessera/tensor/dtype.h"

namespace tessera::kernels::cpu {

// (x - mean) * scale + shift, channel by channel.
struct ChannelAffine {
  const float* mean;
  const float* scale;
  const float* shift;
};

// y = affine(x), plus residual or affine(residual), and 0 where that is below 0 with `relu`. y may be x or residual.
struct NormaliseRows {
  const void* x;
  ChannelAffine affine;
  const void* residual = nullptr;
  const ChannelAffine* residual_affine = nullptr;
  bool relu = false;
  void* y;
};

// The cotangents that reach batch_norm's result: those of dy (and more_dy) where y is positive, which are also stored
// in `masked`; without y those of dy where affine(x) is positive; with nothing but the mean in `affine` all of dy.
struct GradientRows {
  const void* dy;
  const void* x;
  ChannelAffine affine;
  const void* more_dy = nullptr;
  const void* y = nullptr;
  void* masked = nullptr;
};

// dx = scale * (dy - shift - (x - mean) * slope), dy where affine(x) is positive or, without affine.shift, all of it.
// dx may be dy or x.
struct GradientInputRows {
  const void* dy;
  const void* x;
  ChannelAffine affine;
  const float* shift;
  const float* slope;
  void* dx;
};

// Moments are the mean and the sum of squared differences from it, per channel, of `count` rows.
struct Moments {
  double* mean;
  double* squares;
  int64_t count = 0;
};

struct BatchNormFunctions {
  void (*normalise)(const NormaliseRows& images, int64_t first, int64_t last, int64_t channels);
  // sums[c] += the sum of cotangents, sums[channels + c] += that of them times (x - mean). `partial`: scratch for
  // 2 * channels floats.
  void (*add_gradients)(const GradientRows& images, int64_t first, int64_t last, int64_t channels, float* partial,
                        double* sums);
  void (*gradient_input)(const GradientInputRows& images, int64_t first, int64_t last, int64_t channels);
  // Adds rows [first, last) of x to the moments. `partial`: scratch for 3 * channels floats.
  void (*add_moments)(const void* x, int64_t first, int64_t last, int64_t channels, float* partial, Moments& moments);
  // scale[c] = gamma[c] / sqrt(variance[c] + eps); gamma nullptr: 1.
  void (*inverse_deviations)(const float* variance, float eps, const float* gamma, int64_t channels, float* scale);
};

// Returns nullptr for other dtypes.
const BatchNormFunctions* batch_norm_functions(DType images);

// Leaves the moments of both sets in `to`. (Chan, Golub and LeVeque, 1983.)
void combine_moments(const Moments& more, int64_t channels, Moments& to);

}  // namespace tessera::kernels::cpu
