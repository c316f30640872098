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

template <RowOp kOp>
HWY_INLINE VF apply(VF a) {
  const VF zero = hn::Zero(DF());
  const VF one = vset(1.0F);
  if constexpr (kOp == RowOp::kCopy) return a;
  if constexpr (kOp == RowOp::kNeg) return hn::Neg(a);
  if constexpr (kOp == RowOp::kAbs) return hn::Abs(a);
  if constexpr (kOp == RowOp::kSign) {
    const VF positive = hn::IfThenElse(hn::Gt(a, zero), one, a);  // a itself where it is 0 or NaN
    return hn::IfThenElse(hn::Lt(a, zero), hn::Neg(one), positive);
  }
  if constexpr (kOp == RowOp::kFloor) return hn::Floor(a);
  if constexpr (kOp == RowOp::kSqrt) return hn::Sqrt(a);
  if constexpr (kOp == RowOp::kRsqrt) return hn::Div(one, hn::Sqrt(a));
  if constexpr (kOp == RowOp::kReciprocal) return hn::Div(one, a);
  if constexpr (kOp == RowOp::kExp) return vexp(a);
  if constexpr (kOp == RowOp::kLog) return vlog(a);
  if constexpr (kOp == RowOp::kSin) return vsin(a);
  if constexpr (kOp == RowOp::kCos) return vcos(a);
  if constexpr (kOp == RowOp::kRelu) return hn::IfThenElse(hn::Le(a, zero), zero, a);
  if constexpr (kOp == RowOp::kSigmoid) return vsigmoid(a);
  if constexpr (kOp == RowOp::kTanh) return vtanh(a);
  if constexpr (kOp == RowOp::kSquare) return hn::Mul(a, a);
  if constexpr (kOp == RowOp::kGeluTanh) return vgelu_tanh(a);
  if constexpr (kOp == RowOp::kGeluErf) return vgelu_erf(a);
  if constexpr (kOp == RowOp::kIsFinite) {
    return from_mask(hn::Lt(hn::Abs(a), vset(std::numeric_limits<float>::infinity())));
  }
  if constexpr (kOp == RowOp::kLogicalNot) return from_mask(hn::Eq(a, zero));
  if constexpr (kOp == RowOp::kRoundBF16) return vround_bf16(a);
  if constexpr (kOp == RowOp::kRoundF16) return vfrom_f16_bits(vto_f16_bits(a));
}

template <RowOp kOp>
HWY_INLINE VF apply(VF a, VF b) {
  const VF zero = hn::Zero(DF());
  const VF one = vset(1.0F);
  if constexpr (kOp == RowOp::kAdd) return hn::Add(a, b);
  if constexpr (kOp == RowOp::kSub) return hn::Sub(a, b);
  if constexpr (kOp == RowOp::kMul) return hn::Mul(a, b);
  if constexpr (kOp == RowOp::kDiv) return hn::Div(a, b);
  // The comparison is false where b is NaN, which then is the result.
  if constexpr (kOp == RowOp::kMaximum) return vkeep_nan(a, hn::IfThenElse(hn::Gt(a, b), a, b));
  if constexpr (kOp == RowOp::kMinimum) return vkeep_nan(a, hn::IfThenElse(hn::Lt(a, b), a, b));
  if constexpr (kOp == RowOp::kPow) {
    const DF d;
    HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN float y[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(a, d, x);
    hn::Store(b, d, y);
    for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::pow(x[i], y[i]);
    return hn::Load(d, x);
  }
  if constexpr (kOp == RowOp::kReluGrad) return hn::IfThenElseZero(hn::Gt(b, zero), a);
  if constexpr (kOp == RowOp::kSigmoidGrad) return hn::Mul(hn::Mul(a, b), hn::Sub(one, b));
  if constexpr (kOp == RowOp::kTanhGrad) return hn::Mul(a, hn::NegMulAdd(b, b, one));
  if constexpr (kOp == RowOp::kGeluTanhGrad) return vgelu_tanh_grad(a, b);
  if constexpr (kOp == RowOp::kGeluErfGrad) return vgelu_erf_grad(a, b);
  if constexpr (kOp == RowOp::kEqual) return from_mask(hn::Eq(a, b));
  if constexpr (kOp == RowOp::kNotEqual) return from_mask(differ(a, b));
  if constexpr (kOp == RowOp::kLess) return from_mask(hn::Lt(a, b));
  if constexpr (kOp == RowOp::kLessEqual) return from_mask(hn::Le(a, b));
  if constexpr (kOp == RowOp::kGreater) return from_mask(hn::Gt(a, b));
  if constexpr (kOp == RowOp::kGreaterEqual) return from_mask(hn::Ge(a, b));
  if constexpr (kOp == RowOp::kLogicalAnd) return from_mask(hn::And(is_nonzero(a), is_nonzero(b)));
  if constexpr (kOp == RowOp::kLogicalOr) return from_mask(hn::Or(is_nonzero(a), is_nonzero(b)));
  if constexpr (kOp == RowOp::kLogicalXor) return from_mask(hn::Xor(is_nonzero(a), is_nonzero(b)));
}

template <RowOp kOp>
HWY_INLINE VF apply(VF a, VF b, VF c) {
  return hn::IfThenElse(is_nonzero(a), b, c);
}

constexpr int arity(RowOp op) { return op < RowOp::kAdd ? 1 : op < RowOp::kSelect ? 2 : 3; }

template <RowOp kOp>
HWY_INLINE VF apply_at(const float* a, const float* b, const float* c) {
  const DF d;
  if constexpr (arity(kOp) == 1) return apply<kOp>(hn::LoadU(d, a));
  if constexpr (arity(kOp) == 2) return apply<kOp>(hn::LoadU(d, a), hn::LoadU(d, b));
  if constexpr (arity(kOp) == 3) return apply<kOp>(hn::LoadU(d, a), hn::LoadU(d, b), hn::LoadU(d, c));
}

template <RowOp kOp>
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
  return {row<static_cast<RowOp>(kOps)>...};
}

}  // namespace

RowFunction get_row_function(RowOp op) {
  static constexpr auto table = make_table(std::make_index_sequence<static_cast<size_t>(RowOp::kCount)>());
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

constexpr RowOpInfo kInfo[] = {
    {RowOp::kCopy, "copy", 1},
    {RowOp::kNeg, "neg", 1},
    {RowOp::kAbs, "abs", 1},
    {RowOp::kSign, "sign", 1},
    {RowOp::kFloor, "floor", 1},
    {RowOp::kSqrt, "sqrt", 1},
    {RowOp::kRsqrt, "rsqrt", 1},
    {RowOp::kReciprocal, "reciprocal", 1},
    {RowOp::kExp, "exp", 1},
    {RowOp::kLog, "log", 1},
    {RowOp::kSin, "sin", 1},
    {RowOp::kCos, "cos", 1},
    {RowOp::kRelu, "relu", 1},
    {RowOp::kSigmoid, "sigmoid", 1},
    {RowOp::kTanh, "tanh", 1},
    {RowOp::kSquare, "square", 1},
    {RowOp::kGeluTanh, "gelu_tanh", 1},
    {RowOp::kGeluErf, "gelu_erf", 1},
    {RowOp::kIsFinite, "is_finite", 1},
    {RowOp::kLogicalNot, "logical_not", 1},
    {RowOp::kRoundBF16, "round_bf16", 1},
    {RowOp::kRoundF16, "round_f16", 1},
    {RowOp::kAdd, "add", 2},
    {RowOp::kSub, "sub", 2},
    {RowOp::kMul, "mul", 2},
    {RowOp::kDiv, "div", 2},
    {RowOp::kMaximum, "maximum", 2},
    {RowOp::kMinimum, "minimum", 2},
    {RowOp::kPow, "pow", 2},
    {RowOp::kReluGrad, "relu_grad", 2},
    {RowOp::kSigmoidGrad, "sigmoid_grad", 2},
    {RowOp::kTanhGrad, "tanh_grad", 2},
    {RowOp::kGeluTanhGrad, "gelu_tanh_grad", 2},
    {RowOp::kGeluErfGrad, "gelu_erf_grad", 2},
    {RowOp::kEqual, "equal", 2},
    {RowOp::kNotEqual, "not_equal", 2},
    {RowOp::kLess, "less", 2},
    {RowOp::kLessEqual, "less_equal", 2},
    {RowOp::kGreater, "greater", 2},
    {RowOp::kGreaterEqual, "greater_equal", 2},
    {RowOp::kLogicalAnd, "logical_and", 2},
    {RowOp::kLogicalOr, "logical_or", 2},
    {RowOp::kLogicalXor, "logical_xor", 2},
    {RowOp::kSelect, "select", 3},
};
static_assert(std::size(kInfo) == static_cast<size_t>(RowOp::kCount));

}  // namespace

const RowOpInfo& row_op_info(RowOp op) { return kInfo[static_cast<size_t>(op)]; }

std::optional<RowOp> find_row_op(std::string_view name) {
  for (const RowOpInfo& info : kInfo) {
    if (info.name == name) return info.op;
  }
  return std::nullopt;
}

RowFunction row_function(RowOp op) { return HWY_DYNAMIC_DISPATCH(get_row_function)(op); }
RowLoad row_load(DType dtype) { return HWY_DYNAMIC_DISPATCH(get_row_load)(dtype); }
RowStore row_store(DType dtype) { return HWY_DYNAMIC_DISPATCH(get_row_store)(dtype); }

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
