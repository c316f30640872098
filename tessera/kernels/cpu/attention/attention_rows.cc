#include "tessera/kernels/cpu/attention/attention_rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/attention/attention_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VF at(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE int64_t num_lanes() { return static_cast<int64_t>(hn::Lanes(DF())); }
HWY_INLINE VF larger(VF a, VF b) { return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Gt(a, b), a, b)); }
HWY_INLINE float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

float scale_and_mask(float* x, float scale, const float* add, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  VF largest = vset(kLowest);
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    const VF scaled = hn::Mul(at(x + i), vset(scale));
    const VF score = add == nullptr ? scaled : hn::Add(scaled, at(add + i));
    largest = larger(score, largest);
    hn::StoreU(score, DF(), x + i);
  }
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(largest, DF(), lanes);
  float result = kLowest;
  for (int64_t lane = 0; lane < num_lanes(); ++lane) result = larger(lanes[lane], result);
  for (; i < n; ++i) {
    x[i] = x[i] * scale + (add == nullptr ? 0 : add[i]);
    result = larger(x[i], result);
  }
  return result;
}

HWY_INLINE float sum_of(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }

float exponentials(const float* x, float shift, float* y, int64_t n) {
  VF sum = hn::Zero(DF());
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    const VF e = vexp(hn::Sub(at(x + i), vset(shift)));
    sum = hn::Add(sum, e);
    hn::StoreU(e, DF(), y + i);
  }
  float total = sum_of(sum);
  for (; i < n; ++i) {
    y[i] = std::exp(x[i] - shift);
    total += y[i];
  }
  return total;
}

void multiply(float* x, float factor, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) hn::StoreU(hn::Mul(at(x + i), vset(factor)), DF(), x + i);
  for (; i < n; ++i) x[i] *= factor;
}

void weights_and_gradients(float* s, float* dw, const float* add, float scale, float lse, float delta, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    const VF shifted = hn::MulSub(at(s + i), vset(scale), vset(lse));
    const VF weight = vexp(add == nullptr ? shifted : hn::Add(shifted, at(add + i)));
    hn::StoreU(weight, DF(), s + i);
    hn::StoreU(hn::Mul(hn::Mul(weight, hn::Sub(at(dw + i), vset(delta))), vset(scale)), DF(), dw + i);
  }
  for (; i < n; ++i) {
    s[i] = std::exp(s[i] * scale - lse + (add == nullptr ? 0 : add[i]));
    dw[i] = s[i] * (dw[i] - delta) * scale;
  }
}

float dot(const float* a, const float* b, int64_t n) {
  VF sum = hn::Zero(DF());
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) sum = hn::MulAdd(at(a + i), at(b + i), sum);
  float total = sum_of(sum);
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

}  // namespace

const AttentionRows& get_attention_rows() {
  static const AttentionRows rows = {scale_and_mask, exponentials, multiply, weights_and_gradients, dot};
  return rows;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {

HWY_EXPORT(get_attention_rows);

const AttentionRows& attention_rows() { return HWY_DYNAMIC_DISPATCH(get_attention_rows)(); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
