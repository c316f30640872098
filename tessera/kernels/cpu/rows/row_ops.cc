#include "tessera/kernels/cpu/rows/row_ops.h"

#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/rows/row_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

using MF = hn::Mask<DF>;

HWY_INLINE VF from_mask(MF mask) { return hn::IfThenElseZero(mask, vset(1.0F)); }
// Not Ne(): some of its versions are false where an operand is NaN.
HWY_INLINE MF differ(VF a, VF b) { return hn::Not(hn::Eq(a, b)); }
HWY_INLINE MF is_nonzero(VF x) { return differ(x, hn::Zero(DF())); }

template <ElementOp kOp>
HWY_INLINE VF apply(VF a) {
  const VF zero = hn::Zero(DF());
  const VF one = vset(1.0F);
  if constexpr (kOp == ElementOp::kCopy) return a;
  if constexpr (kOp == ElementOp::kNeg) return hn::Neg(a);
  if constexpr (kOp == ElementOp::kAbs) return hn::Abs(a);
  if constexpr (kOp == ElementOp::kSign) {
    const VF positive = hn::IfThenElse(hn::Gt(a, zero), one, a);  // a itself where it is 0 or NaN
    return hn::IfThenElse(hn::Lt(a, zero), hn::Neg(one), positive);
  }
  if constexpr (kOp == ElementOp::kFloor) return hn::Floor(a);
  if constexpr (kOp == ElementOp::kSqrt) return hn::Sqrt(a);
  if constexpr (kOp == ElementOp::kRsqrt) return hn::Div(one, hn::Sqrt(a));
  if constexpr (kOp == ElementOp::kReciprocal) return hn::Div(one, a);
  if constexpr (kOp == ElementOp::kExp) return vexp(a);
  if constexpr (kOp == ElementOp::kLog) return vlog(a);
  if constexpr (kOp == ElementOp::kExpm1) return vexpm1(a);
  if constexpr (kOp == ElementOp::kLog1p) return vlog1p(a);
  if constexpr (kOp == ElementOp::kSinh) return vsinh(a);
  if constexpr (kOp == ElementOp::kCosh) return vcosh(a);
  if constexpr (kOp == ElementOp::kAsinh) return vasinh(a);
  if constexpr (kOp == ElementOp::kAtanh) return vatanh(a);
  if constexpr (kOp == ElementOp::kSin) return vsin(a);
  if constexpr (kOp == ElementOp::kCos) return vcos(a);
  if constexpr (kOp == ElementOp::kRelu) return hn::IfThenElse(hn::Le(a, zero), zero, a);
  if constexpr (kOp == ElementOp::kSigmoid) return vsigmoid(a);
  if constexpr (kOp == ElementOp::kTanh) return vtanh(a);
  if constexpr (kOp == ElementOp::kSquare) return hn::Mul(a, a);
  if constexpr (kOp == ElementOp::kGeluTanh) return vgelu_tanh(a);
  if constexpr (kOp == ElementOp::kGeluErf) return vgelu_erf(a);
  if constexpr (kOp == ElementOp::kIsFinite) {
    return from_mask(hn::Lt(hn::Abs(a), vset(std::numeric_limits<float>::infinity())));
  }
  if constexpr (kOp == ElementOp::kLogicalNot) return from_mask(hn::Eq(a, zero));
  if constexpr (kOp == ElementOp::kRoundBF16) return vround_bf16(a);
  if constexpr (kOp == ElementOp::kRoundF16) return vfrom_f16_bits(vto_f16_bits(a));
}

template <ElementOp kOp>
HWY_INLINE VF apply(VF a, VF b) {
  const VF zero = hn::Zero(DF());
  const VF one = vset(1.0F);
  if constexpr (kOp == ElementOp::kAdd) return hn::Add(a, b);
  if constexpr (kOp == ElementOp::kSub) return hn::Sub(a, b);
  if constexpr (kOp == ElementOp::kMul) return hn::Mul(a, b);
  if constexpr (kOp == ElementOp::kDiv) return hn::Div(a, b);
  // The comparison is false where b is NaN, which then is the result.
  if constexpr (kOp == ElementOp::kMaximum) return vkeep_nan(a, hn::IfThenElse(hn::Gt(a, b), a, b));
  if constexpr (kOp == ElementOp::kMinimum) return vkeep_nan(a, hn::IfThenElse(hn::Lt(a, b), a, b));
  if constexpr (kOp == ElementOp::kPow) {
    const DF d;
    HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN float y[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(a, d, x);
    hn::Store(b, d, y);
    for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::pow(x[i], y[i]);
    return hn::Load(d, x);
  }
  if constexpr (kOp == ElementOp::kReluGrad) return hn::IfThenElseZero(hn::Gt(b, zero), a);
  if constexpr (kOp == ElementOp::kSigmoidGrad) return hn::Mul(hn::Mul(a, b), hn::Sub(one, b));
  if constexpr (kOp == ElementOp::kTanhGrad) return hn::Mul(a, hn::NegMulAdd(b, b, one));
  if constexpr (kOp == ElementOp::kGeluTanhGrad) return vgelu_tanh_grad(a, b);
  if constexpr (kOp == ElementOp::kGeluErfGrad) return vgelu_erf_grad(a, b);
  if constexpr (kOp == ElementOp::kEqual) return from_mask(hn::Eq(a, b));
  if constexpr (kOp == ElementOp::kNotEqual) return from_mask(differ(a, b));
  if constexpr (kOp == ElementOp::kLess) return from_mask(hn::Lt(a, b));
  if constexpr (kOp == ElementOp::kLessEqual) return from_mask(hn::Le(a, b));
  if constexpr (kOp == ElementOp::kGreater) return from_mask(hn::Gt(a, b));
  if constexpr (kOp == ElementOp::kGreaterEqual) return from_mask(hn::Ge(a, b));
  if constexpr (kOp == ElementOp::kLogicalAnd) return from_mask(hn::And(is_nonzero(a), is_nonzero(b)));
  if constexpr (kOp == ElementOp::kLogicalOr) return from_mask(hn::Or(is_nonzero(a), is_nonzero(b)));
  if constexpr (kOp == ElementOp::kLogicalXor) return from_mask(hn::Xor(is_nonzero(a), is_nonzero(b)));
}

template <ElementOp kOp>
HWY_INLINE VF apply(VF a, VF b, VF c) {
  return hn::IfThenElse(is_nonzero(a), b, c);
}

constexpr int arity(ElementOp op) { return info_of(op).arity; }

template <ElementOp kOp>
HWY_INLINE VF apply_at(const float* a, const float* b, const float* c) {
  const DF d;
  if constexpr (arity(kOp) == 1) return apply<kOp>(hn::LoadU(d, a));
  if constexpr (arity(kOp) == 2) return apply<kOp>(hn::LoadU(d, a), hn::LoadU(d, b));
  if constexpr (arity(kOp) == 3) return apply<kOp>(hn::LoadU(d, a), hn::LoadU(d, b), hn::LoadU(d, c));
}

template <ElementOp kOp>
void row(const float* a, const float* b, const float* c, float* y, size_t n) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(apply_at<kOp>(a + i, b + i, c + i), d, y + i);
  if (i == n) return;
  // The rest goes through memory of our own, padded with ones: nothing beyond the row is read.
  HWY_ALIGN float tail[3][HWY_MAX_BYTES / sizeof(float)];
  for (size_t j = 0; j < lanes; ++j) tail[0][j] = tail[1][j] = tail[2][j] = 1.0F;
  const size_t bytes = (n - i) * sizeof(float);
  std::memcpy(tail[0], a + i, bytes);
  if constexpr (arity(kOp) > 1) std::memcpy(tail[1], b + i, bytes);
  if constexpr (arity(kOp) > 2) std::memcpy(tail[2], c + i, bytes);
  hn::Store(apply_at<kOp>(tail[0], tail[1], tail[2]), d, tail[0]);
  std::memcpy(y + i, tail[0], bytes);
}

void load_f32(const void* from, float* to, size_t n) { std::memcpy(to, from, n * sizeof(float)); }
void store_f32(const float* from, void* to, size_t n) { std::memcpy(to, from, n * sizeof(float)); }

void load_bf16(const void* from, float* to, size_t n) {
  const auto* p = static_cast<const uint16_t*>(from);
  const DU d;
  const hn::Rebind<uint16_t, DU> d16;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const VU wide = hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, p + i)));
    hn::StoreU(hn::BitCast(DF(), wide), DF(), to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<const BFloat16*>(from)[i];
}
void store_bf16(const float* from, void* to, size_t n) {
  auto* p = static_cast<uint16_t*>(to);
  const DF d;
  const hn::Rebind<int16_t, DF> d16;
  const DI di;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    // The arithmetic shift keeps the value within int16, so that the saturating narrowing changes nothing.
    const auto bits = hn::ShiftRight<16>(hn::BitCast(di, vround_bf16_bits(hn::LoadU(d, from + i))));
    hn::StoreU(hn::DemoteTo(d16, bits), d16, reinterpret_cast<int16_t*>(p + i));
  }
  for (; i < n; ++i) static_cast<BFloat16*>(to)[i] = from[i];
}

void load_f16(const void* from, float* to, size_t n) {
  const auto* p = static_cast<const uint16_t*>(from);
  const DU d;
  const hn::Rebind<uint16_t, DU> d16;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(vfrom_f16_bits(hn::PromoteTo(d, hn::LoadU(d16, p + i))), DF(), to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<const Float16*>(from)[i];
}
void store_f16(const float* from, void* to, size_t n) {
  auto* p = static_cast<uint16_t*>(to);
  const DF d;
  const hn::Rebind<int16_t, DF> d16;
  const DI di;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto high = hn::BitCast(di, hn::ShiftLeft<16>(vto_f16_bits(hn::LoadU(d, from + i))));
    hn::StoreU(hn::DemoteTo(d16, hn::ShiftRight<16>(high)), d16, reinterpret_cast<int16_t*>(p + i));
  }
  for (; i < n; ++i) static_cast<Float16*>(to)[i] = from[i];
}

void load_u8(const void* from, float* to, size_t n) {
  const auto* p = static_cast<const uint8_t*>(from);
  const DI d;
  const hn::Rebind<uint8_t, DI> d8;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::ConvertTo(DF(), hn::PromoteTo(d, hn::LoadU(d8, p + i))), DF(), to + i);
  }
  for (; i < n; ++i) to[i] = p[i];
}
void store_u8(const float* from, void* to, size_t n) {
  auto* p = static_cast<uint8_t*>(to);
  const DF d;
  const hn::Rebind<uint8_t, DF> d8;
  const VF zero = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const VF x = hn::LoadU(d, from + i);
    const VF clamped = hn::IfThenElseZero(hn::Gt(x, zero), hn::Min(x, vset(255.0F)));  // NaN: 0
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(DI(), clamped)), d8, p + i);
  }
  for (; i < n; ++i) p[i] = from[i] > 0 ? static_cast<uint8_t>(from[i] < 255 ? from[i] : 255) : 0;
}
void store_bool(const float* from, void* to, size_t n) {
  auto* p = static_cast<uint8_t*>(to);
  const DF d;
  const hn::Rebind<uint8_t, DF> d8;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const VF x = from_mask(is_nonzero(hn::LoadU(d, from + i)));
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(DI(), x)), d8, p + i);
  }
  for (; i < n; ++i) p[i] = from[i] != 0;
}

template <size_t... kOps>
constexpr std::array<RowFunction, sizeof...(kOps)> make_table(std::index_sequence<kOps...>) {
  return {row<static_cast<ElementOp>(kOps)>...};
}

}  // namespace

RowFunction get_row_function(ElementOp op) {
  static constexpr auto table = make_table(std::make_index_sequence<std::size(kElementOps)>());
  return table[static_cast<size_t>(op)];
}
RowLoad get_row_load(DType dtype) {
  switch (dtype) {
    case DType::kF32: return load_f32;
    case DType::kBF16: return load_bf16;
    case DType::kF16: return load_f16;
    case DType::kU8:
    case DType::kBool: return load_u8;
    default: return nullptr;
  }
}
RowStore get_row_store(DType dtype) {
  switch (dtype) {
    case DType::kF32: return store_f32;
    case DType::kBF16: return store_bf16;
    case DType::kF16: return store_f16;
    case DType::kU8: return store_u8;
    case DType::kBool: return store_bool;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {

HWY_EXPORT(get_row_function);
HWY_EXPORT(get_row_load);
HWY_EXPORT(get_row_store);

}  // namespace

RowFunction row_function(ElementOp op) { return HWY_DYNAMIC_DISPATCH(get_row_function)(op); }
RowLoad row_load(DType dtype) { return HWY_DYNAMIC_DISPATCH(get_row_load)(dtype); }
RowStore row_store(DType dtype) { return HWY_DYNAMIC_DISPATCH(get_row_store)(dtype); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
