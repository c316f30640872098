// Sums and extremes of f32 rows and columns, vectorised. Sums are made in f32 over blocks of a few hundred rows and
// added up in f64, which keeps the sum over half a million rows as good as a pairwise one.
#pragma once

#include <cstdint>

namespace tessera::kernels::cpu {

enum class RowReduction { kSum, kMax, kMin };

// A matrix in memory; neighbours in a row are neighbours in memory.
struct Rows {
  const float* data;
  int64_t rows;
  int64_t stride;
  int64_t columns;
};

struct ReduceFunctions {
  // sums[c] += the sum of column c. `partial`: scratch for `columns` floats.
  void (*add_columns)(const Rows& x, float* partial, double* sums);
  // sums[c] += the sum of (x - mean[c])^2.
  void (*add_column_squares)(const Rows& x, const float* mean, float* partial, double* sums);
  // extremes[c] = the largest (smallest) of itself and column c; NaN wins.
  void (*max_columns)(const Rows& x, float* extremes);
  void (*min_columns)(const Rows& x, float* extremes);

  double (*sum)(const float* x, int64_t n);
  void (*sum_rows)(const Rows& x, double* sums);                                  // the same of each row
  double (*sum_squares)(const float* x, float mean, int64_t n);                   // sum of (x - mean)^2
  double (*sum_products)(const float* a, const float* b, float mean, int64_t n);  // sum of a * (b - mean)
  float (*max)(const float* x, int64_t n, float start);
  float (*min)(const float* x, int64_t n, float start);
  // y = exp(x - shift), not stored when y is null; returns the sum of y.
  double (*exp_sum)(const float* x, float shift, float* y, int64_t n);
};

const ReduceFunctions& reduce_functions();

}  // namespace tessera::kernels::cpu
