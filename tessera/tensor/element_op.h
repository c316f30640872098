// Element operators: the functions of one to three elements that elementwise kernels and fused programs are made of.
// Here is the list, with what each computes; whoever needs names, operands or values asks it. A new one needs besides
// its vector form in kernels/cpu/rows/row_ops.cc, its definition in ops/defs/elementwise.cc, and its function in
// ops/functions/elementwise_functions.h; docs/extending.md goes through them.
//
// Kernels that are compiled for a device include this file as text, with TESSERA_DEVICE_CODE defined. They have of the
// standard library what kernels/cuda/device_code/prelude.h declares: of <cmath> what takes one or two numbers.
#pragma once

#ifndef TESSERA_DEVICE_CODE
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tessera/tensor/half.h"
#endif

namespace tessera {

// Which dtypes an element operator's operands and result have. Operators with an attribute are the elementwise
// operator's forms, and named by none: gelu is gelu_tanh or gelu_erf.
enum class ElementTypes {
  kNumeric,   // one numeric dtype
  kFloating,  // one floating dtype
  kCompared,  // operands of one dtype; a bool result
  kBool,      // all bool
  kSelect,    // bool, then two of the result's dtype
  kForm       // one floating dtype; no operator has this name
};

// X(constant, name in programs, number of operands, dtypes, follows_matmul, is_exact).
// follows_matmul: a matrix product can apply it to each of its elements. relu is not among these: the library's kernel
// makes 0 of NaN, and would hide a step that went wrong.
// is_exact: of operands of a half type the result is of that type as it is; computed in f32 it needs no rounding.
#define TESSERA_ELEMENT_OPS(X)                                 \
  X(kCopy, "copy", 1, kForm, true, true)                       \
  X(kNeg, "neg", 1, kNumeric, true, true)                      \
  X(kAbs, "abs", 1, kNumeric, false, true)                     \
  X(kSign, "sign", 1, kNumeric, false, true)                   \
  X(kFloor, "floor", 1, kFloating, false, true)                \
  X(kSqrt, "sqrt", 1, kFloating, false, false)                 \
  X(kRsqrt, "rsqrt", 1, kFloating, false, false)               \
  X(kReciprocal, "reciprocal", 1, kFloating, false, false)     \
  X(kExp, "exp", 1, kFloating, false, false)                   \
  X(kLog, "log", 1, kFloating, false, false)                   \
  X(kExpm1, "expm1", 1, kFloating, false, false)               \
  X(kLog1p, "log1p", 1, kFloating, false, false)               \
  X(kSinh, "sinh", 1, kFloating, false, false)                 \
  X(kCosh, "cosh", 1, kFloating, false, false)                 \
  X(kAsinh, "asinh", 1, kFloating, false, false)               \
  X(kAtanh, "atanh", 1, kFloating, false, false)               \
  X(kSin, "sin", 1, kFloating, false, false)                   \
  X(kCos, "cos", 1, kFloating, false, false)                   \
  X(kRelu, "relu", 1, kFloating, false, true)                  \
  X(kSigmoid, "sigmoid", 1, kFloating, true, false)            \
  X(kTanh, "tanh", 1, kFloating, true, false)                  \
  X(kSquare, "square", 1, kNumeric, true, false)               \
  X(kGeluTanh, "gelu_tanh", 1, kForm, true, false)             \
  X(kGeluErf, "gelu_erf", 1, kForm, true, false)               \
  X(kIsFinite, "is_finite", 1, kCompared, false, true)         \
  X(kLogicalNot, "logical_not", 1, kBool, false, true)         \
  X(kRoundBF16, "round_bf16", 1, kForm, true, true)            \
  X(kRoundF16, "round_f16", 1, kForm, true, true)              \
  X(kAdd, "add", 2, kNumeric, true, false)                     \
  X(kSub, "sub", 2, kNumeric, true, false)                     \
  X(kMul, "mul", 2, kNumeric, true, false)                     \
  X(kDiv, "div", 2, kFloating, true, false)                    \
  X(kMaximum, "maximum", 2, kNumeric, false, true)             \
  X(kMinimum, "minimum", 2, kNumeric, false, true)             \
  X(kPow, "pow", 2, kNumeric, false, false)                    \
  X(kReluGrad, "relu_grad", 2, kFloating, false, true)         \
  X(kSigmoidGrad, "sigmoid_grad", 2, kFloating, false, false)  \
  X(kTanhGrad, "tanh_grad", 2, kFloating, false, false)        \
  X(kGeluTanhGrad, "gelu_tanh_grad", 2, kForm, false, false)   \
  X(kGeluErfGrad, "gelu_erf_grad", 2, kForm, false, false)     \
  X(kEqual, "equal", 2, kCompared, false, true)                \
  X(kNotEqual, "not_equal", 2, kCompared, false, true)         \
  X(kLess, "less", 2, kCompared, false, true)                  \
  X(kLessEqual, "less_equal", 2, kCompared, false, true)       \
  X(kGreater, "greater", 2, kCompared, false, true)            \
  X(kGreaterEqual, "greater_equal", 2, kCompared, false, true) \
  X(kLogicalAnd, "logical_and", 2, kBool, false, true)         \
  X(kLogicalOr, "logical_or", 2, kBool, false, true)           \
  X(kLogicalXor, "logical_xor", 2, kBool, false, true)         \
  X(kSelect, "select", 3, kSelect, false, true)

enum class ElementOp {
#define TESSERA_CONSTANT(constant, ...) constant,
  TESSERA_ELEMENT_OPS(TESSERA_CONSTANT)
#undef TESSERA_CONSTANT
};

#ifndef TESSERA_DEVICE_CODE
struct ElementOpInfo {
  ElementOp op;
  std::string_view name;  // in programs; the operator's name where there is one
  int arity;
  ElementTypes types;
  bool follows_matmul;
  bool is_exact;
};

inline constexpr ElementOpInfo kElementOps[] = {
#define TESSERA_ROW(constant, name, arity, types, follows_matmul, is_exact) \
  {ElementOp::constant, name, arity, ElementTypes::types, follows_matmul, is_exact},
    TESSERA_ELEMENT_OPS(TESSERA_ROW)
#undef TESSERA_ROW
};

constexpr const ElementOpInfo& info_of(ElementOp op) { return kElementOps[static_cast<size_t>(op)]; }

constexpr std::optional<ElementOp> find_element_op(std::string_view name) {
  for (const ElementOpInfo& info : kElementOps) {
    if (info.name == name) return info.op;
  }
  return std::nullopt;
}
#endif

namespace element {

// Signed overflow is undefined, unsigned is not: integers wrap around.
template <typename C, typename F>
constexpr C wrapping(C a, C b, F f) {
  if constexpr (std::is_integral_v<C> && !std::is_same_v<C, bool>) {
    using U = std::make_unsigned_t<std::conditional_t<(sizeof(C) < sizeof(int)), unsigned, C>>;
    return static_cast<C>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

template <typename C>
bool is_nan(C x) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::isnan(x);
  } else {
    return false;
  }
}

}  // namespace element

// What an element operator computes, as the reference kernels do it, in arithmetic of C: float, double, or an integer
// or bool where its dtypes allow. Operands beyond its number are not looked at; truths are 1 and 0.
template <ElementOp kOp, typename C>
C element_value(C a, [[maybe_unused]] C b = {}, [[maybe_unused]] C c = {}) {
  using enum ElementOp;
  constexpr bool kIsFloat = std::is_floating_point_v<C>;
  const auto truth = [](bool holds) { return static_cast<C>(holds); };
  // These take every dtype.
  if constexpr (kOp == kCopy) return a;
  if constexpr (kOp == kEqual) return truth(a == b);
  if constexpr (kOp == kNotEqual) return truth(a != b);
  if constexpr (kOp == kLess) return truth(a < b);
  if constexpr (kOp == kLessEqual) return truth(a <= b);
  if constexpr (kOp == kGreater) return truth(a > b);
  if constexpr (kOp == kGreaterEqual) return truth(a >= b);
  if constexpr (kOp == kLogicalNot) return truth(a == C(0));
  if constexpr (kOp == kLogicalAnd) return truth(a != C(0) && b != C(0));
  if constexpr (kOp == kLogicalOr) return truth(a != C(0) || b != C(0));
  if constexpr (kOp == kLogicalXor) return truth((a != C(0)) != (b != C(0)));
  if constexpr (kOp == kSelect) return a != C(0) ? b : c;
  // These take numbers.
  if constexpr (kOp == kAdd) return element::wrapping(a, b, [](auto x, auto y) { return x + y; });
  if constexpr (kOp == kSub) return element::wrapping(a, b, [](auto x, auto y) { return x - y; });
  if constexpr (kOp == kMul) return element::wrapping(a, b, [](auto x, auto y) { return x * y; });
  if constexpr (kOp == kSquare) return element_value<kMul>(a, a);
  if constexpr (kOp == kMaximum) return element::is_nan(a) || a > b ? a : b;
  if constexpr (kOp == kMinimum) return element::is_nan(a) || a < b ? a : b;
  if constexpr (kOp == kNeg) {
    if constexpr (kIsFloat) return -a;  // 0 - 0 would lose the sign of zero
    return element_value<kSub>(C(0), a);
  }
  if constexpr (kOp == kAbs) {
    if constexpr (kIsFloat) return std::abs(a);
    return a < C(0) ? element_value<kNeg>(a) : a;
  }
  if constexpr (kOp == kSign) return element::is_nan(a) || a == C(0) ? a : a > C(0) ? C(1) : static_cast<C>(-1);
  if constexpr (kOp == kPow && kIsFloat) return std::pow(a, b);
  if constexpr (kOp == kPow && !kIsFloat) {
    if (b < C(0)) {
      return a == C(1) ? C(1) : std::is_signed_v<C> && a == static_cast<C>(-1) ? (b % 2 == 0 ? C(1) : a) : C(0);
    }
    C result = 1;
    for (; b > 0; b = static_cast<C>(b / 2)) {
      if (b % 2 == 1) result = element_value<kMul>(result, a);
      a = element_value<kMul>(a, a);
    }
    return result;
  }
  // These take floating dtypes only.
  if constexpr (kIsFloat) {
    constexpr C kSlope = C(0.044715);
    constexpr C kSqrtTwoOverPi = C(0.797884560802865355879892119868763737);
    if constexpr (kOp == kFloor) return std::floor(a);
    if constexpr (kOp == kSqrt) return std::sqrt(a);
    if constexpr (kOp == kRsqrt) return 1 / std::sqrt(a);
    if constexpr (kOp == kReciprocal) return 1 / a;
    if constexpr (kOp == kExp) return std::exp(a);
    if constexpr (kOp == kLog) return std::log(a);
    if constexpr (kOp == kExpm1) return std::expm1(a);
    if constexpr (kOp == kLog1p) return std::log1p(a);
    if constexpr (kOp == kSinh) return std::sinh(a);
    if constexpr (kOp == kCosh) return std::cosh(a);
    if constexpr (kOp == kAsinh) return std::asinh(a);
    if constexpr (kOp == kAtanh) return std::atanh(a);
    if constexpr (kOp == kSin) return std::sin(a);
    if constexpr (kOp == kCos) return std::cos(a);
    if constexpr (kOp == kTanh) return std::tanh(a);
    if constexpr (kOp == kRelu) return a <= 0 ? C(0) : a;
    if constexpr (kOp == kIsFinite) return truth(std::isfinite(a));
    if constexpr (kOp == kDiv) return a / b;
    if constexpr (kOp == kSigmoid) {
      const C e = std::exp(-std::abs(a));  // of a negative number only: it cannot overflow
      return a >= 0 ? 1 / (1 + e) : e / (1 + e);
    }
    if constexpr (kOp == kGeluTanh) {
      return C(0.5) * a * (1 + std::tanh(kSqrtTwoOverPi * (a + kSlope * a * a * a)));
    }
    if constexpr (kOp == kGeluErf) return C(0.5) * a * std::erfc(-a / std::numbers::sqrt2_v<C>);
    if constexpr (kOp == kRoundBF16) return static_cast<float>(BFloat16(static_cast<float>(a)));
    if constexpr (kOp == kRoundF16) return static_cast<float>(Float16(static_cast<float>(a)));
    // Gradients: a is the result's.
    if constexpr (kOp == kReluGrad) return b > 0 ? a : C(0);
    if constexpr (kOp == kSigmoidGrad) return a * b * (1 - b);
    if constexpr (kOp == kTanhGrad) return a * (1 - b * b);
    if constexpr (kOp == kGeluTanhGrad) {
      const C t = std::tanh(kSqrtTwoOverPi * (b + kSlope * b * b * b));
      const C du = kSqrtTwoOverPi * (1 + 3 * kSlope * b * b);
      return a * (C(0.5) * (1 + t) + C(0.5) * b * (1 - t * t) * du);
    }
    if constexpr (kOp == kGeluErfGrad) {
      const C density = std::exp(C(-0.5) * b * b) * C(0.5) * kSqrtTwoOverPi;
      return a * (C(0.5) * std::erfc(-b / std::numbers::sqrt2_v<C>) + b * density);
    }
  }
}

}  // namespace tessera
