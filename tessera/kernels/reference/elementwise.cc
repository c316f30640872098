#include <cmath>
#include <numbers>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"

// Functors compute in ComputeType: f32 for the half types. Integers wrap around.

namespace tessera::kernels::reference {
namespace {

// Signed overflow is undefined, unsigned is not.
template <typename C>
using Wrapping = std::make_unsigned_t<std::conditional_t<std::is_same_v<C, uint8_t>, unsigned, C>>;

template <typename C, typename F>
C wrapping(C a, C b, F f) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(f(static_cast<Wrapping<C>>(a), static_cast<Wrapping<C>>(b)));
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

// Each functor takes and gives the compute type.
constexpr auto kAdd = [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); };
constexpr auto kSub = [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x - y; }); };
constexpr auto kMul = [](auto a, auto b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); };
constexpr auto kDiv = [](auto a, auto b) { return a / b; };
constexpr auto kMaximum = [](auto a, auto b) { return is_nan(a) || a > b ? a : b; };
constexpr auto kMinimum = [](auto a, auto b) { return is_nan(a) || a < b ? a : b; };
constexpr auto kPow = [](auto a, auto b) -> decltype(a) {
  using C = decltype(a);
  if constexpr (std::is_integral_v<C>) {
    if (b < 0)
      return a == C(1) ? C(1) : std::is_signed_v<C> && a == static_cast<C>(-1) ? (b % 2 == 0 ? C(1) : a) : C(0);
    C result = 1;
    for (; b > 0; b = static_cast<C>(b / 2)) {
      if (b % 2 == 1) result = kMul(result, a);
      a = kMul(a, a);
    }
    return result;
  } else {
    return std::pow(a, b);
  }
};
constexpr auto kReluGrad = [](auto dy, auto y) { return y > 0 ? dy : decltype(dy)(0); };
constexpr auto kSigmoidGrad = [](auto dy, auto y) { return dy * y * (1 - y); };
constexpr auto kTanhGrad = [](auto dy, auto y) { return dy * (1 - y * y); };

constexpr auto kNeg = [](auto x) { return kSub(decltype(x)(0), x); };
constexpr auto kNegFloating = [](auto x) { return -x; };  // 0 - 0 would lose the sign of zero
constexpr auto kAbs = [](auto x) {
  if constexpr (std::is_floating_point_v<decltype(x)>) {
    return std::abs(x);
  } else {
    return x < 0 ? kNeg(x) : x;
  }
};
constexpr auto kSign = [](auto x) {
  return is_nan(x) ? x : static_cast<decltype(x)>(static_cast<int>(x > 0) - static_cast<int>(x < 0));
};
constexpr auto kSquare = [](auto x) { return kMul(x, x); };
constexpr auto kFloor = [](auto x) { return std::floor(x); };
constexpr auto kSqrt = [](auto x) { return std::sqrt(x); };
constexpr auto kRsqrt = [](auto x) { return 1 / std::sqrt(x); };
constexpr auto kReciprocal = [](auto x) { return 1 / x; };
constexpr auto kExp = [](auto x) { return std::exp(x); };
constexpr auto kLog = [](auto x) { return std::log(x); };
constexpr auto kSin = [](auto x) { return std::sin(x); };
constexpr auto kCos = [](auto x) { return std::cos(x); };
constexpr auto kRelu = [](auto x) { return x <= 0 ? decltype(x)(0) : x; };
constexpr auto kTanh = [](auto x) { return std::tanh(x); };
constexpr auto kSigmoid = [](auto x) {
  // exp of a negative number only: it cannot overflow.
  const auto e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
};

template <typename C>
constexpr C kGeluSlope = C(0.044715);
template <typename C>
constexpr C kSqrtTwoOverPi = C(0.797884560802865355879892119868763737);

constexpr auto kGeluTanh = [](auto x) {
  using C = decltype(x);
  return C(0.5) * x * (1 + std::tanh(kSqrtTwoOverPi<C> * (x + kGeluSlope<C> * x * x * x)));
};
constexpr auto kGeluErf = [](auto x) {
  using C = decltype(x);
  return C(0.5) * x * std::erfc(-x / std::numbers::sqrt2_v<C>);
};
constexpr auto kGeluTanhGrad = [](auto dy, auto x) {
  using C = decltype(x);
  const C t = std::tanh(kSqrtTwoOverPi<C> * (x + kGeluSlope<C> * x * x * x));
  const C du = kSqrtTwoOverPi<C> * (1 + 3 * kGeluSlope<C> * x * x);
  return dy * (C(0.5) * (1 + t) + C(0.5) * x * (1 - t * t) * du);
};
constexpr auto kGeluErfGrad = [](auto dy, auto x) {
  using C = decltype(x);
  const C density = std::exp(C(-0.5) * x * x) * C(0.5) * kSqrtTwoOverPi<C>;
  return dy * (C(0.5) * std::erfc(-x / std::numbers::sqrt2_v<C>) + x * density);
};

// f on every element; Out is T, or bool for predicates.
template <typename T, typename Out, typename F>
void apply_unary(const KernelArgs& args, const F& f) {
  const T* x = args.inputs[0].as<T>();
  Out* y = args.outputs[0].as<Out>();
  for_each_row<2>(args.outputs[0].shape, {args.inputs[0].strides, args.outputs[0].strides},
                  [&](const auto& at, int64_t count, const auto& step) {
                    for (int64_t i = 0; i < count; ++i) {
                      y[at[1] + i * step[1]] = static_cast<Out>(f(static_cast<ComputeType<T>>(x[at[0] + i * step[0]])));
                    }
                  });
}

template <typename T, typename Out, typename F>
void apply_binary(const KernelArgs& args, const F& f) {
  const T* x = args.inputs[0].as<T>();
  const T* y = args.inputs[1].as<T>();
  Out* z = args.outputs[0].as<Out>();
  const Shape& shape = args.outputs[0].shape;
  for_each_row<3>(
      shape,
      {broadcast_strides(args.inputs[0], shape), broadcast_strides(args.inputs[1], shape), args.outputs[0].strides},
      [&](const auto& at, int64_t count, const auto& step) {
        for (int64_t i = 0; i < count; ++i) {
          z[at[2] + i * step[2]] = static_cast<Out>(f(static_cast<ComputeType<T>>(x[at[0] + i * step[0]]),
                                                      static_cast<ComputeType<T>>(y[at[1] + i * step[1]])));
        }
      });
}

template <auto F>
void floating_unary(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "elementwise operator",
                    [&](auto zero) { apply_unary<decltype(zero), decltype(zero)>(args, F); });
}

template <auto F>
void numeric_unary(const KernelArgs& args) {
  dispatch_numeric(args.inputs[0].dtype, "elementwise operator",
                   [&](auto zero) { apply_unary<decltype(zero), decltype(zero)>(args, F); });
}

template <auto F>
void floating_binary(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "elementwise operator",
                    [&](auto zero) { apply_binary<decltype(zero), decltype(zero)>(args, F); });
}

template <auto F>
void numeric_binary(const KernelArgs& args) {
  dispatch_numeric(args.inputs[0].dtype, "elementwise operator",
                   [&](auto zero) { apply_binary<decltype(zero), decltype(zero)>(args, F); });
}

template <auto F>
void comparison(const KernelArgs& args) {
  dispatch_dtype(args.inputs[0].dtype, "comparison", [&](auto zero) { apply_binary<decltype(zero), bool>(args, F); });
}

template <auto F>
void logic(const KernelArgs& args) {
  apply_binary<bool, bool>(args, F);
}

void run_neg(const KernelArgs& args) {
  if (is_floating(args.inputs[0].dtype)) {
    floating_unary<kNegFloating>(args);
  } else {
    numeric_unary<kNeg>(args);
  }
}

void run_gelu(const KernelArgs& args) {
  if (args.attributes.get_bool("approximate")) {
    floating_unary<kGeluTanh>(args);
  } else {
    floating_unary<kGeluErf>(args);
  }
}

void run_gelu_grad(const KernelArgs& args) {
  if (args.attributes.get_bool("approximate")) {
    floating_binary<kGeluTanhGrad>(args);
  } else {
    floating_binary<kGeluErfGrad>(args);
  }
}

void run_logical_not(const KernelArgs& args) {
  apply_unary<bool, bool>(args, [](bool x) { return !x; });
}

void run_is_finite(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "is_finite", [&](auto zero) {
    apply_unary<decltype(zero), bool>(args, [](auto x) { return std::isfinite(x); });
  });
}

void run_select(const KernelArgs& args) {
  const Shape& shape = args.outputs[0].shape;
  const bool* condition = args.inputs[0].as<bool>();
  dispatch_dtype(args.outputs[0].dtype, "select", [&](auto zero) {
    using T = decltype(zero);
    const T* x = args.inputs[1].as<T>();
    const T* y = args.inputs[2].as<T>();
    T* z = args.outputs[0].as<T>();
    for_each_row<4>(shape,
                    {broadcast_strides(args.inputs[0], shape), broadcast_strides(args.inputs[1], shape),
                     broadcast_strides(args.inputs[2], shape), args.outputs[0].strides},
                    [&](const auto& at, int64_t count, const auto& step) {
                      for (int64_t i = 0; i < count; ++i) {
                        z[at[3] + i * step[3]] =
                            condition[at[0] + i * step[0]] ? x[at[1] + i * step[1]] : y[at[2] + i * step[2]];
                      }
                    });
  });
}

void run_copy(const KernelArgs& args) { copy_elements(args.inputs[0], args.outputs[0]); }

void run_custom_gradient(const KernelArgs& args) {
  for (size_t i = 0; i < args.outputs.size(); ++i) copy_elements(args.inputs[i], args.outputs[i]);
}

struct Entry {
  const char* op;
  void (*run)(const KernelArgs&);
};

constexpr Entry kUnaries[] = {
    {"neg", run_neg},
    {"abs", numeric_unary<kAbs>},
    {"sign", numeric_unary<kSign>},
    {"stop_gradient", run_copy},
    {"square", numeric_unary<kSquare>},
    {"floor", floating_unary<kFloor>},
    {"sqrt", floating_unary<kSqrt>},
    {"rsqrt", floating_unary<kRsqrt>},
    {"reciprocal", floating_unary<kReciprocal>},
    {"exp", floating_unary<kExp>},
    {"log", floating_unary<kLog>},
    {"sin", floating_unary<kSin>},
    {"cos", floating_unary<kCos>},
    {"relu", floating_unary<kRelu>},
    {"sigmoid", floating_unary<kSigmoid>},
    {"tanh", floating_unary<kTanh>},
    {"gelu", run_gelu},
    {"logical_not", run_logical_not},
};

constexpr Entry kBinaries[] = {
    {"add", numeric_binary<kAdd>},
    {"sub", numeric_binary<kSub>},
    {"mul", numeric_binary<kMul>},
    {"div", floating_binary<kDiv>},
    {"maximum", numeric_binary<kMaximum>},
    {"minimum", numeric_binary<kMinimum>},
    {"pow", numeric_binary<kPow>},
    {"relu_grad", floating_binary<kReluGrad>},
    {"sigmoid_grad", floating_binary<kSigmoidGrad>},
    {"tanh_grad", floating_binary<kTanhGrad>},
    {"gelu_grad", run_gelu_grad},
    {"logical_and", logic<[](bool a, bool b) { return a && b; }>},
    {"logical_or", logic<[](bool a, bool b) { return a || b; }>},
    {"logical_xor", logic<[](bool a, bool b) { return a != b; }>},
};

constexpr Entry kComparisons[] = {
    {"equal", comparison<[](auto a, auto b) { return a == b; }>},
    {"not_equal", comparison<[](auto a, auto b) { return a != b; }>},
    {"less", comparison<[](auto a, auto b) { return a < b; }>},
    {"less_equal", comparison<[](auto a, auto b) { return a <= b; }>},
    {"greater", comparison<[](auto a, auto b) { return b < a; }>},
    {"greater_equal", comparison<[](auto a, auto b) { return a >= b; }>},
};

}  // namespace

void add_elementwise(KernelRegistry& registry) {
  for (const auto& entry : kUnaries) registry.add_function(entry.op, "reference", entry.run, {{0, 0}});
  for (const auto& entry : kBinaries) registry.add_function(entry.op, "reference", entry.run, {{0, 0}, {1, 0}});
  for (const auto& entry : kComparisons) registry.add_function(entry.op, "reference", entry.run);
  registry.add_function("is_finite", "reference", run_is_finite);
  registry.add_function("select", "reference", run_select, {{1, 0}, {2, 0}});
  registry.add_function("cast", "reference", run_copy);
  registry.add_function("custom_gradient", "reference", run_custom_gradient);
}

}  // namespace tessera::kernels::reference
