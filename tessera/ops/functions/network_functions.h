// What the layers of networks compute. n: images or rows, c: channels or classes, h and w: height and width, ci and co:
// channels in and out. Operands of mixed dtypes are promoted.
#pragma once

#include <optional>

#include "tessera/ops/functions/creation_functions.h"
#include "tessera/ops/registry/op_def.h"

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

// Strides and dilation have height and width; one entry means both. Padding is {top, bottom, left, right}; one entry
// means all four, and it may only be given with kPad.
struct ConvolutionOptions {
  Ints stride = {1};
  PadMode pad_mode = PadMode::kValid;
  Ints padding = {0};
  Ints dilation = {1};
  int64_t groups = 1;
};
// x[n,ci,h,w] with weight[co,ci/groups,kh,kw] -> [n,co,oh,ow]; a correlation, as all frameworks have it. Floating.
Value conv2d(Value x, Value weight, const ConvolutionOptions& options = {});
// The transpose of that convolution: x[n,ci,h,w] with weight[ci,co/groups,kh,kw] -> [n,co,oh,ow]. `size` is {oh,ow}, of
// which the convolution must make {h,w}. Where it is absent, oh is h stride with kSame, h stride + max(reach - stride,
// 0) with kValid and h stride + reach - stride - padding with kPad, reach being dilation (kh - 1) + 1. Floating.
Value conv2d_transpose(Value x, Value weight, const ConvolutionOptions& options = {}, const Ints& size = {});

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
// -log(softmax(logits)[label]) per row: logits[n,c] floating, labels[n] i32 or i64 -> [n]. A label outside [0, c) stops
// the step.
Value softmax_cross_entropy(Value logits, Value labels);

struct AttentionOptions {
  // What queries see of keys, [t,s], [b,t,s] or [b,h,t,s], where b, h and t may be 1: bool, or floating numbers that
  // are added to the scores. Taken as constant: no gradient flows through it. Absent: all of them.
  Value mask = {};
  // Query i sees the keys 0 to i only.
  bool causal = false;
  // Times the products of queries and keys are the scores; absent: 1 / sqrt(d).
  std::optional<double> scale = std::nullopt;
  // Below 1, weights are dropped as dropout() drops; `step` is then the i64[] step of training.
  double keep_prob = 1;
  Value step = {};
  RandomSource source = {};
};
// Scaled dot-product attention: query[b,t,h,d], key[b,s,h,d], value[b,s,h,e] -> softmax(scores) value, [b,t,h,e], for
// each of the h heads. A query that sees no key gets zeros. Takes memory for the operands and result only: the weights
// are computed again by the gradient. Vaswani et al., "Attention is all you need" (2017); Dao et al., "FlashAttention"
// (2022). Throws InvalidArgument for shapes that do not fit, and where dropout lacks its step.
Value attention(Value query, Value key, Value value, const AttentionOptions& options = {});

// gamma * (x - mean) / sqrt(variance + eps) + beta over the dims from begin_axis on; gamma and beta have those dims.
// Ba, Kiros and Hinton, "Layer normalization" (2016).
Value layer_norm(Value x, Value gamma, Value beta, int64_t begin_axis = -1, double eps = 1e-5);

}  // namespace tessera::ops
