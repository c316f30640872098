#include "tessera/kernels/cpu/rows/reduce_rows.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/rows/reduce_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rows whose columns are added in f32 before they go to f64.
constexpr int64_t kBlockRows = 256;
// Elements of one row that are; a vector's lanes times the accumulators add to the accuracy.
constexpr int64_t kBlockElements = 4096;

// How many floats ahead to ask for: some rows, and enough to cover the way to memory.
inline int64_t ahead(const Rows& x) { return std::max<int64_t>(1024, 4 * x.stride); }
HWY_INLINE void prefetch(const float* p) { __builtin_prefetch(p, 0, 2); }

HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF square(VF x) { return hn::Mul(x, x); }
HWY_INLINE VF larger(VF a, VF b) { return vkeep_nan(a, hn::IfThenElse(hn::Gt(a, b), a, b)); }
HWY_INLINE VF smaller(VF a, VF b) { return vkeep_nan(a, hn::IfThenElse(hn::Lt(a, b), a, b)); }
inline float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }
inline float smaller(float a, float b) { return std::isnan(a) || a < b ? a : b; }

// What is summed: of one element, as a vector and as a number.
struct Plain {
  HWY_INLINE VF vector(const float* x, int64_t) const { return load(x); }
  float scalar(const float* x, int64_t) const { return *x; }
};
struct Squares {
  const float* mean;
  HWY_INLINE VF vector(const float* x, int64_t c) const { return square(hn::Sub(load(x), load(mean + c))); }
  float scalar(const float* x, int64_t c) const { return (*x - mean[c]) * (*x - mean[c]); }
};

// partial[c] = sum over the rows of f(x[r][c]), four rows at a time.
template <class F>
HWY_INLINE void block_columns(const F& f, const Rows& x, int64_t first, int64_t last, float* partial) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int64_t distance = ahead(x);
  std::fill_n(partial, x.columns, 0.0F);
  for (int64_t r = first; r < last;) {
    const float* row = x.data + r * x.stride;
    const int64_t step = last - r >= 4 ? 4 : 1;
    int64_t c = 0;
    if (step == 4) {
      const float* row1 = row + x.stride;
      const float* row2 = row1 + x.stride;
      const float* row3 = row2 + x.stride;
      for (; c + lanes <= x.columns; c += lanes) {
        prefetch(row + c + distance);
        prefetch(row1 + c + distance);
        prefetch(row2 + c + distance);
        prefetch(row3 + c + distance);
        const VF sum = hn::Add(hn::Add(f.vector(row + c, c), f.vector(row1 + c, c)),
                               hn::Add(f.vector(row2 + c, c), f.vector(row3 + c, c)));
        hn::StoreU(hn::Add(load(partial + c), sum), DF(), partial + c);
      }
      for (; c < x.columns; ++c) {
        partial[c] += (f.scalar(row + c, c) + f.scalar(row1 + c, c)) + (f.scalar(row2 + c, c) + f.scalar(row3 + c, c));
      }
    } else {
      for (; c + lanes <= x.columns; c += lanes) {
        hn::StoreU(hn::Add(load(partial + c), f.vector(row + c, c)), DF(), partial + c);
      }
      for (; c < x.columns; ++c) partial[c] += f.scalar(row + c, c);
    }
    r += step;
  }
}

template <class F>
HWY_INLINE void add_columns_of(const F& f, const Rows& x, float* partial, double* sums) {
  for (int64_t first = 0; first < x.rows; first += kBlockRows) {
    block_columns(f, x, first, std::min(first + kBlockRows, x.rows), partial);
    for (int64_t c = 0; c < x.columns; ++c) sums[c] += partial[c];
  }
}

void add_columns(const Rows& x, float* partial, double* sums) { add_columns_of(Plain(), x, partial, sums); }
void add_column_squares(const Rows& x, const float* mean, float* partial, double* sums) {
  add_columns_of(Squares{mean}, x, partial, sums);
}

template <bool kMax>
void extreme_columns(const Rows& x, float* extremes) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    int64_t c = 0;
    for (; c + lanes <= x.columns; c += lanes) {
      const VF a = load(extremes + c);
      const VF b = load(row + c);
      hn::StoreU(kMax ? larger(a, b) : smaller(a, b), DF(), extremes + c);
    }
    for (; c < x.columns; ++c) extremes[c] = kMax ? larger(extremes[c], row[c]) : smaller(extremes[c], row[c]);
  }
}

// The sum of f(i) over i < n; f gives a vector from i on, or one number.
template <class Vector, class Scalar>
HWY_INLINE double sum_of(int64_t n, const Vector& vector, const Scalar& scalar) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  double total = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    const int64_t end = std::min(i + kBlockElements, n);
    VF sum0 = hn::Zero(DF());
    VF sum1 = sum0;
    VF sum2 = sum0;
    VF sum3 = sum0;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      sum0 = hn::Add(sum0, vector(i));
      sum1 = hn::Add(sum1, vector(i + lanes));
      sum2 = hn::Add(sum2, vector(i + 2 * lanes));
      sum3 = hn::Add(sum3, vector(i + 3 * lanes));
    }
    for (; i + lanes <= end; i += lanes) sum0 = hn::Add(sum0, vector(i));
    total += vsum(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
  }
  for (; i < n; ++i) total += scalar(i);
  return total;
}

struct VectorAt {
  const float* x;
  HWY_INLINE VF operator()(int64_t i) const { return load(x + i); }
};
struct ScalarAt {
  const float* x;
  double operator()(int64_t i) const { return x[i]; }
};
double sum(const float* x, int64_t n) { return sum_of(n, VectorAt{x}, ScalarAt{x}); }
void sum_rows(const Rows& x, double* sums) {
  for (int64_t r = 0; r < x.rows; ++r) sums[r] = sum(x.data + r * x.stride, x.columns);
}

struct SquareVector {
  const float* x;
  float mean;
  HWY_INLINE VF operator()(int64_t i) const { return square(hn::Sub(load(x + i), vset(mean))); }
};
struct SquareScalar {
  const float* x;
  float mean;
  double operator()(int64_t i) const { return (x[i] - mean) * (x[i] - mean); }
};
double sum_squares(const float* x, float mean, int64_t n) {
  return sum_of(n, SquareVector{x, mean}, SquareScalar{x, mean});
}

struct ProductVector {
  const float* a;
  const float* b;
  float mean;
  HWY_INLINE VF operator()(int64_t i) const { return hn::Mul(load(a + i), hn::Sub(load(b + i), vset(mean))); }
};
struct ProductScalar {
  const float* a;
  const float* b;
  float mean;
  double operator()(int64_t i) const { return a[i] * (b[i] - mean); }
};
double sum_products(const float* a, const float* b, float mean, int64_t n) {
  return sum_of(n, ProductVector{a, b, mean}, ProductScalar{a, b, mean});
}

template <bool kMax>
float extreme(const float* x, int64_t n, float start) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  if (n >= lanes) {
    VF best = vset(start);
    for (; i + lanes <= n; i += lanes) best = kMax ? larger(best, load(x + i)) : smaller(best, load(x + i));
    HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(best, DF(), values);
    for (int64_t j = 0; j < lanes; ++j) start = kMax ? larger(start, values[j]) : smaller(start, values[j]);
  }
  for (; i < n; ++i) start = kMax ? larger(start, x[i]) : smaller(start, x[i]);
  return start;
}

double exp_sum(const float* x, float shift, float* y, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const VF minus = vset(shift);
  double total = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    const int64_t end = std::min(i + kBlockElements, n);
    VF sum = hn::Zero(DF());
    for (; i + lanes <= end; i += lanes) {
      const VF e = vexp(hn::Sub(load(x + i), minus));
      if (y != nullptr) hn::StoreU(e, DF(), y + i);
      sum = hn::Add(sum, e);
    }
    total += vsum(sum);
  }
  if (i < n) {
    HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)];
    std::fill_n(tail, lanes, shift);
    std::copy(x + i, x + n, tail);
    hn::Store(vexp(hn::Sub(hn::Load(DF(), tail), minus)), DF(), tail);
    for (int64_t j = 0; i < n; ++i, ++j) {
      total += tail[j];
      if (y != nullptr) y[i] = tail[j];
    }
  }
  return total;
}

}  // namespace

const ReduceFunctions& get_reduce_functions() {
  static const ReduceFunctions functions = {
      .add_columns = add_columns,
      .add_column_squares = add_column_squares,
      .max_columns = extreme_columns<true>,
      .min_columns = extreme_columns<false>,
      .sum = sum,
      .sum_rows = sum_rows,
      .sum_squares = sum_squares,
      .sum_products = sum_products,
      .max = extreme<true>,
      .min = extreme<false>,
      .exp_sum = exp_sum,
  };
  return functions;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {
HWY_EXPORT(get_reduce_functions);
}

const ReduceFunctions& reduce_functions() { return HWY_DYNAMIC_DISPATCH(get_reduce_functions)(); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
