// What attention does to a row of scores, vectorised. Rows are f32; `add`, the mask of the row, may be null.
#pragma once

#include <cstdint>

namespace tessera::kernels::cpu {

struct AttentionRows {
  // x = x * scale + add; returns the largest of the new x, -inf for n = 0.
  float (*scale_and_mask)(float* x, float scale, const float* add, int64_t n);
  // y = exp(x - shift); returns the sum of y. y may be x.
  float (*exponentials)(const float* x, float shift, float* y, int64_t n);
  void (*multiply)(float* x, float factor, int64_t n);
  // From scores s and the cotangents dw of the weights: w = exp(s * scale + add - lse) over s, and the cotangents of
  // the products of queries and keys, w * (dw - delta) * scale, over dw.
  void (*weights_and_gradients)(float* s, float* dw, const float* add, float scale, float lse, float delta, int64_t n);
  float (*dot)(const float* a, const float* b, int64_t n);
};

const AttentionRows& attention_rows();

}  // namespace tessera::kernels::cpu
