// These are functions of one vector of floats, for inclusion after hwy/highway.h inside each target. Errors are within
// a few units in the last place of the C library's; special values (NaN, infinities, zeros) give what the C library
// gives.
#if defined(TESSERA_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_VECTOR_MATH_INL_H
#undef TESSERA_VECTOR_MATH_INL_H
#else
#define TESSERA_VECTOR_MATH_INL_H
#endif

#include <cmath>
#include <limits>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "tessera/tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<uint32_t>;
using DI = hn::ScalableTag<int32_t>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

HWY_INLINE VF vset(float x) { return hn::Set(DF(), x); }
// The sum of the lanes.
HWY_INLINE double vsum(VF x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::GetLane(x);
#else
  const hn::RepartitionToWide<DF> d;
  const auto lower = hn::PromoteTo(d, hn::LowerHalf(x));
  const auto upper = hn::PromoteTo(d, hn::UpperHalf(hn::Half<DF>(), x));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(lower, upper)));
#endif
}
HWY_INLINE VF vkeep_nan(VF x, VF y) { return hn::IfThenElse(hn::IsNaN(x), x, y); }

HWY_INLINE VF vexp(VF x) {
  // Above 88.73 the result overflows to infinity by itself, as long as the exponent field does not wrap.
  return vkeep_nan(x, hn::Exp(DF(), hn::Min(x, vset(100.0F))));
}

HWY_INLINE VF vlog(VF x) {
  const DF d;
  const VF inf = vset(std::numeric_limits<float>::infinity());
  VF y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), vset(std::numeric_limits<float>::quiet_NaN()), y);
  return vkeep_nan(x, y);
}

HWY_INLINE VF vexpm1(VF x) { return vkeep_nan(x, hn::Expm1(DF(), hn::Min(x, vset(100.0F)))); }

HWY_INLINE VF vlog1p(VF x) {
  const DF d;
  const VF inf = vset(std::numeric_limits<float>::infinity());
  const VF minus_one = vset(-1.0F);
  VF y = hn::Log1p(d, x);
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  y = hn::IfThenElse(hn::Eq(x, minus_one), hn::Neg(inf), y);
  y = hn::IfThenElse(hn::Lt(x, minus_one), vset(std::numeric_limits<float>::quiet_NaN()), y);
  return vkeep_nan(x, y);
}

// Half of e^size, of a size that is not negative: e^size itself would overflow before the half of it does.
HWY_INLINE VF vhalf_exp(VF size) {
  const VF root = vexp(hn::Mul(vset(0.5F), hn::Min(size, vset(190.0F))));
  return hn::Mul(hn::Mul(vset(0.5F), root), root);
}
// Beyond this size e^-size is nothing beside e^size in f32.
inline constexpr float kOneExponential = 20.0F;

HWY_INLINE VF vsinh(VF x) {
  const VF size = hn::Abs(x);
  const VF near = hn::Sinh(DF(), hn::Min(size, vset(kOneExponential)));
  const VF y = hn::IfThenElse(hn::Gt(size, vset(kOneExponential)), vhalf_exp(size), near);
  return vkeep_nan(x, hn::CopySign(y, x));
}
HWY_INLINE VF vcosh(VF x) {
  const VF size = hn::Abs(x);
  const VF e = vexp(hn::Min(size, vset(kOneExponential)));
  const VF near = hn::Mul(vset(0.5F), hn::Add(e, hn::Div(vset(1.0F), e)));
  return vkeep_nan(x, hn::IfThenElse(hn::Gt(size, vset(kOneExponential)), vhalf_exp(size), near));
}

HWY_INLINE VF vasinh(VF x) {
  const VF infinity = vset(std::numeric_limits<float>::infinity());
  return vkeep_nan(x, hn::IfThenElse(hn::Eq(hn::Abs(x), infinity), x, hn::Asinh(DF(), x)));
}

HWY_INLINE VF vatanh(VF x) {
  const VF one = vset(1.0F);
  const VF size = hn::Abs(x);
  VF y = hn::Atanh(DF(), x);
  y = hn::IfThenElse(hn::Eq(size, one), hn::CopySign(vset(std::numeric_limits<float>::infinity()), x), y);
  y = hn::IfThenElse(hn::Gt(size, one), vset(std::numeric_limits<float>::quiet_NaN()), y);
  return vkeep_nan(x, y);
}

HWY_INLINE VF vtanh(VF x) {
  const VF y = hn::Tanh(DF(), hn::Max(vset(-20.0F), hn::Min(x, vset(20.0F))));
  return vkeep_nan(x, y);
}

HWY_INLINE VF vsigmoid(VF x) { return hn::Div(vset(1.0F), hn::Add(vset(1.0F), vexp(hn::Neg(x)))); }

// Rational approximation on [-4, 4], beyond which erf is 1 in f32 (the one of Eigen and XLA).
HWY_INLINE VF verf(VF x) {
  const VF z = hn::Max(vset(-4.0F), hn::Min(x, vset(4.0F)));
  const VF z2 = hn::Mul(z, z);
  VF p = vset(-2.72614225801306e-10F);
  for (const float c : {2.77068142495902e-08F, -2.10102402082508e-06F, -5.69250639462346e-05F, -7.34990630326855e-04F,
                        -2.95459980854025e-03F, -1.60960333262415e-02F}) {
    p = hn::MulAdd(p, z2, vset(c));
  }
  VF q = vset(-1.45660718464996e-05F);
  for (const float c :
       {-2.13374055278905e-04F, -1.68282697438203e-03F, -7.37332916720468e-03F, -1.42647390514189e-02F}) {
    q = hn::MulAdd(q, z2, vset(c));
  }
  const VF y = hn::Div(hn::Mul(z, p), q);
  return vkeep_nan(x, hn::Max(vset(-1.0F), hn::Min(y, vset(1.0F))));
}

// The polynomials of sin and cos hold for |x| < 39000; a vector with anything beyond, or NaN, goes to the C library.
template <class Vectorised>
HWY_INLINE VF vsin_or_cos(VF x, float (*scalar)(float), Vectorised vectorised) {
  const DF d;
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), vset(30000.0F))))) return vectorised(x);
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = scalar(lanes[i]);
  return hn::Load(d, lanes);
}
struct SinVector {
  HWY_INLINE VF operator()(VF x) const { return hn::Sin(DF(), x); }
};
struct CosVector {
  HWY_INLINE VF operator()(VF x) const { return hn::Cos(DF(), x); }
};
HWY_INLINE VF vsin(VF x) {
  return vsin_or_cos(
      x, [](float v) { return std::sin(v); }, SinVector());
}
HWY_INLINE VF vcos(VF x) {
  return vsin_or_cos(
      x, [](float v) { return std::cos(v); }, CosVector());
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
inline constexpr float kGeluScale = 0.7978845608028654F;
inline constexpr float kGeluCubic = 0.044715F;
inline constexpr float kInvSqrt2 = 0.7071067811865476F;
inline constexpr float kInvSqrt2Pi = 0.3989422804014327F;

HWY_INLINE VF vgelu_tanh(VF x) {
  const VF cubic = hn::Mul(hn::Mul(hn::Mul(x, x), x), vset(kGeluCubic));
  const VF t = vtanh(hn::Mul(vset(kGeluScale), hn::Add(x, cubic)));
  return hn::Mul(hn::Mul(vset(0.5F), x), hn::Add(vset(1.0F), t));
}
HWY_INLINE VF vgelu_tanh_grad(VF dy, VF x) {
  const VF x2 = hn::Mul(x, x);
  const VF inner = hn::Mul(vset(kGeluScale), hn::MulAdd(hn::Mul(x2, x), vset(kGeluCubic), x));
  const VF t = vtanh(inner);
  const VF slope = hn::Mul(vset(kGeluScale), hn::MulAdd(x2, vset(3 * kGeluCubic), vset(1.0F)));
  const VF sech2 = hn::NegMulAdd(t, t, vset(1.0F));
  const VF grad = hn::Mul(vset(0.5F), hn::MulAdd(hn::Mul(x, sech2), slope, hn::Add(vset(1.0F), t)));
  return hn::Mul(dy, grad);
}
HWY_INLINE VF vgelu_erf(VF x) {
  return hn::Mul(hn::Mul(vset(0.5F), x), hn::Add(vset(1.0F), verf(hn::Mul(x, vset(kInvSqrt2)))));
}
HWY_INLINE VF vgelu_erf_grad(VF dy, VF x) {
  const VF cdf = hn::Mul(vset(0.5F), hn::Add(vset(1.0F), verf(hn::Mul(x, vset(kInvSqrt2)))));
  const VF pdf = hn::Mul(vset(kInvSqrt2Pi), vexp(hn::Mul(vset(-0.5F), hn::Mul(x, x))));
  return hn::Mul(dy, hn::MulAdd(x, pdf, cdf));
}

// The bits of x rounded to nearest even to bf16, in the upper half; as BFloat16(float).
HWY_INLINE VU vround_bf16_bits(VF x) {
  const DU d;
  const VU wide = hn::BitCast(d, x);
  const VU rounded = hn::Add(wide, hn::Add(hn::Set(d, 0x7FFFU), hn::And(hn::ShiftRight<16>(wide), hn::Set(d, 1U))));
  const VU quiet = hn::Or(wide, hn::Set(d, 0x00400000U));
  const auto is_nan = hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(DF(), hn::IsNaN(x))));
  return hn::And(hn::IfThenElse(is_nan, quiet, rounded), hn::Set(d, 0xFFFF0000U));
}
HWY_INLINE VF vround_bf16(VF x) { return hn::BitCast(DF(), vround_bf16_bits(x)); }

// Rounds likewise to f16, with the 16 bits in the lower half and the formulas of Float16.
HWY_INLINE VU vto_f16_bits(VF x) {
  const DU d;
  const DF df;
  const VU wide = hn::BitCast(d, x);
  const VU sign = hn::And(hn::ShiftRight<16>(wide), hn::Set(d, 0x8000U));
  const VU magnitude = hn::And(wide, hn::Set(d, 0x7FFFFFFFU));
  const VU normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(magnitude, hn::Set(d, 0xC8000FFFU)), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1U))));
  const VU subnormal =
      hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), vset(0.5F))), hn::Set(d, 0x3F000000U));
  // Both sides are below 2^31, so the signed comparison that every instruction set has will do.
  const DI di;
  const auto m = hn::BitCast(di, magnitude);
  VU half = hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(di, hn::Lt(m, hn::Set(di, 0x38800000))))),
                           subnormal, normal);
  half = hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(di, hn::Gt(m, hn::Set(di, 0x477FEFFF))))),
                        hn::Set(d, 0x7C00U), half);
  half = hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(di, hn::Gt(m, hn::Set(di, 0x7F800000))))),
                        hn::Set(d, 0x7E00U), half);
  return hn::Or(sign, half);
}
HWY_INLINE VF vfrom_f16_bits(VU bits) {
  const DU d;
  const DF df;
  const DI di;
  const VU sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000U)));
  const VU rest = hn::And(bits, hn::Set(d, 0x7FFFU));
  const VU shifted = hn::ShiftLeft<13>(rest);
  const VU normal = hn::Add(shifted, hn::Set(d, 0x38000000U));
  const VU infinite = hn::Or(shifted, hn::Set(d, 0x7F800000U));
  const VU subnormal = hn::BitCast(d, hn::Mul(hn::ConvertTo(df, hn::BitCast(di, rest)), vset(0x1p-24F)));
  const auto r = hn::BitCast(di, rest);
  VU wide = hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(di, hn::Gt(r, hn::Set(di, 0x7BFF))))),
                           infinite, normal);
  wide = hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d, hn::VecFromMask(di, hn::Lt(r, hn::Set(di, 0x0400))))), subnormal,
                        wide);
  return hn::BitCast(df, hn::Or(sign, wide));
}

// A vector of elements of T, f32, bf16 or f16, as floats.
template <typename T>
HWY_INLINE VF vload(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(DF(), from);
  } else {
    const DU d;
    const auto bits = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint16_t, DU>(), reinterpret_cast<const uint16_t*>(from)));
    return std::is_same_v<T, BFloat16> ? hn::BitCast(DF(), hn::ShiftLeft<16>(bits)) : vfrom_f16_bits(bits);
  }
}
// Rounds to T.
template <typename T>
HWY_INLINE void vstore(VF x, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    hn::StoreU(x, DF(), to);
  } else {
    // The arithmetic shift keeps the value within int16, so that the saturating narrowing changes nothing.
    const VU high = std::is_same_v<T, BFloat16> ? vround_bf16_bits(x) : hn::ShiftLeft<16>(vto_f16_bits(x));
    const auto bits = hn::ShiftRight<16>(hn::BitCast(DI(), high));
    const hn::Rebind<int16_t, DF> d16;
    hn::StoreU(hn::DemoteTo(d16, bits), d16, reinterpret_cast<int16_t*>(to));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_VECTOR_MATH_INL_H
