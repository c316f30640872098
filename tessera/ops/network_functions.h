// What the layers of networks compute. n: images or rows, c: channels or classes, h and w: height and width, ci and co:
// channels in and out. Operands of mixed dtypes are promoted.
#pragma once

#include "tessera/ops/op_def.h"

namespace tessera::ops {

// The matrix product as NumPy's matmul: [m,k] x [k,n] -> [m,n]; leading dims are batches and broadcast; a vector [k] is
// a row on the left, a column on the right, and its dim disappears. transpose_a and transpose_b swap an operand's last
// two dims first. Throws InvalidArgument when the contracted dims differ, or for a scalar.
Value matmul(Value lhs, Value rhs, bool transpose_a = false, bool transpose_b = false);
// [..., m,k] x [..., k,n] -> [..., m,n]; leading dims broadcast. Both need at least 2 dims.
Value batch_matmul(Value lhs, Value rhs, bool transpose_a = false, bool transpose_b = false);
// x[n,c,...] + bias[c].
Value bias_add(Value x, Value bias);

enum class PadMode {
  kValid,  // no padding
  kSame,   // the result has ceil(size / stride); an odd zero goes to the bottom and the right
  kPad     // what `padding` says
};

// Height and width; one entry means both. Padding is {top, bottom, left, right}; one entry means all four, and it may
// only be given with kPad.
struct Conv2dOptions {
  Ints stride = {1};
  PadMode pad_mode = PadMode::kValid;
  Ints padding = {0};
  Ints dilation = {1};
  int64_t groups = 1;
};
// x[n,ci,h,w] with weight[co,ci/groups,kh,kw] -> [n,co,oh,ow]; a correlation, as all frameworks have it. Floating.
Value conv2d(Value x, Value weight, const Conv2dOptions& options = {});

struct PoolOptions {
  Ints kernel = {1};
  Ints stride = {1};
  PadMode pad_mode = PadMode::kValid;
  Ints padding = {0};
};
// The largest element of each window of x[n,c,h,w]; the first of equal ones gets the gradient, padding never wins.
Value max_pool2d(Value x, const PoolOptions& options);
// The mean of each window; padding counts as zeros only with count_include_pad.
Value avg_pool2d(Value x, const PoolOptions& options, bool count_include_pad = false);

// exp(x) / sum(exp(x)) along `axis`, and its logarithm. Floating.
Value softmax(Value x, int64_t axis = -1);
Value log_softmax(Value x, int64_t axis = -1);
// -log(softmax(logits)[label]) per row: logits[n,c] floating, labels[n] i32 or i64 -> [n]. A label outside [0, c) gives
// NaN.
Value softmax_cross_entropy(Value logits, Value labels);

// gamma * (x - mean) / sqrt(variance + eps) + beta over the dims from begin_axis on; gamma and beta have those dims.
// Ba, Kiros and Hinton, "Layer normalization" (2016).
Value layer_norm(Value x, Value gamma, Value beta, int64_t begin_axis = -1, double eps = 1e-5);

}  // namespace tessera::ops
