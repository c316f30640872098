// What every kernel that is compiled for a device begins with: element types under the names of dtypes, what
// tensor/element_op.h may use of the standard library, and where a thread stands. NVRTC compiles it, which brings no
// headers; so does a compiler of the host for the emulated device, with emulation.h in front.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#if defined(__CUDACC_RTC__) || defined(TESSERA_EMULATED)
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
#endif

#ifdef TESSERA_EMULATED
#define TESSERA_MATH_F(name) __builtin_##name##f
#define TESSERA_MATH_D(name) __builtin_##name
#define TESSERA_DEVICE
#define INFINITY_F32 __builtin_huge_valf()
#define INFINITY_F64 __builtin_huge_val()
#define NAN_F32 __builtin_nanf("")
#define NAN_F64 __builtin_nan("")
#else
#define TESSERA_MATH_F(name) ::name##f
#define TESSERA_MATH_D(name) ::name
#define TESSERA_DEVICE __device__ __forceinline__
#define INFINITY_F32 __int_as_float(0x7F800000)
#define INFINITY_F64 __longlong_as_double(0x7FF0000000000000LL)
#define NAN_F32 __int_as_float(0x7FC00000)
#define NAN_F64 __longlong_as_double(0x7FF8000000000000LL)
#endif

namespace std {
// What <cmath> has of one and of two numbers, all of it: element_op.h may call any.
#define TESSERA_MATH(name)                                               \
  TESSERA_DEVICE float name(float x) { return TESSERA_MATH_F(name)(x); } \
  TESSERA_DEVICE double name(double x) { return TESSERA_MATH_D(name)(x); }
TESSERA_MATH(acos)
TESSERA_MATH(acosh)
TESSERA_MATH(asin)
TESSERA_MATH(asinh)
TESSERA_MATH(atan)
TESSERA_MATH(atanh)
TESSERA_MATH(cbrt)
TESSERA_MATH(ceil)
TESSERA_MATH(cos)
TESSERA_MATH(cosh)
TESSERA_MATH(erf)
TESSERA_MATH(erfc)
TESSERA_MATH(exp)
TESSERA_MATH(exp2)
TESSERA_MATH(expm1)
TESSERA_MATH(fabs)
TESSERA_MATH(floor)
TESSERA_MATH(lgamma)
TESSERA_MATH(log)
TESSERA_MATH(log10)
TESSERA_MATH(log1p)
TESSERA_MATH(log2)
TESSERA_MATH(logb)
TESSERA_MATH(nearbyint)
TESSERA_MATH(rint)
TESSERA_MATH(round)
TESSERA_MATH(sin)
TESSERA_MATH(sinh)
TESSERA_MATH(sqrt)
TESSERA_MATH(tan)
TESSERA_MATH(tanh)
TESSERA_MATH(tgamma)
TESSERA_MATH(trunc)
#undef TESSERA_MATH
#define TESSERA_MATH(name)                                                           \
  TESSERA_DEVICE float name(float x, float y) { return TESSERA_MATH_F(name)(x, y); } \
  TESSERA_DEVICE double name(double x, double y) { return TESSERA_MATH_D(name)(x, y); }
TESSERA_MATH(atan2)
TESSERA_MATH(copysign)
TESSERA_MATH(fdim)
TESSERA_MATH(fmax)
TESSERA_MATH(fmin)
TESSERA_MATH(fmod)
TESSERA_MATH(hypot)
TESSERA_MATH(nextafter)
TESSERA_MATH(pow)
TESSERA_MATH(remainder)
#undef TESSERA_MATH
TESSERA_DEVICE float abs(float x) { return TESSERA_MATH_F(fabs)(x); }
TESSERA_DEVICE double abs(double x) { return TESSERA_MATH_D(fabs)(x); }
TESSERA_DEVICE float fma(float x, float y, float z) { return TESSERA_MATH_F(fma)(x, y, z); }
TESSERA_DEVICE double fma(double x, double y, double z) { return TESSERA_MATH_D(fma)(x, y, z); }
template <typename T>
TESSERA_DEVICE bool isnan(T x) {
  return x != x;
}
template <typename T>
TESSERA_DEVICE bool isfinite(T x) {
  return x - x == 0;
}
template <typename T>
TESSERA_DEVICE bool isinf(T x) {
  return x == x && x - x != 0;
}

template <typename T>
inline constexpr bool is_floating_point_v = false;
template <>
inline constexpr bool is_floating_point_v<float> = true;
template <>
inline constexpr bool is_floating_point_v<double> = true;
template <typename T>
inline constexpr bool is_integral_v = false;
template <typename T, typename U>
inline constexpr bool is_same_v = false;
template <typename T>
inline constexpr bool is_same_v<T, T> = true;
template <typename T>
inline constexpr bool is_signed_v = T(-1) < T(0);
template <bool kFirst, typename T, typename U>
struct conditional {
  using type = T;
};
template <typename T, typename U>
struct conditional<false, T, U> {
  using type = U;
};
template <bool kFirst, typename T, typename U>
using conditional_t = typename conditional<kFirst, T, U>::type;
template <typename T>
struct make_unsigned;
#define TESSERA_INTEGER(T, U)                    \
  template <>                                    \
  inline constexpr bool is_integral_v<T> = true; \
  template <>                                    \
  struct make_unsigned<T> {                      \
    using type = U;                              \
  };
TESSERA_INTEGER(int8_t, uint8_t)
TESSERA_INTEGER(uint8_t, uint8_t)
TESSERA_INTEGER(int16_t, uint16_t)
TESSERA_INTEGER(uint16_t, uint16_t)
TESSERA_INTEGER(int32_t, uint32_t)
TESSERA_INTEGER(uint32_t, uint32_t)
TESSERA_INTEGER(int64_t, uint64_t)
TESSERA_INTEGER(uint64_t, uint64_t)
#undef TESSERA_INTEGER
template <>
inline constexpr bool is_integral_v<bool> = true;
template <typename T>
using make_unsigned_t = typename make_unsigned<T>::type;
namespace numbers {
template <typename T>
inline constexpr T e_v = T(2.7182818284590452353602874713526624977572470936999);
template <typename T>
inline constexpr T log2e_v = T(1.4426950408889634073599246810018921374266459541530);
template <typename T>
inline constexpr T log10e_v = T(0.4342944819032518276511289189166050822943970058037);
template <typename T>
inline constexpr T pi_v = T(3.1415926535897932384626433832795028841971693993751);
template <typename T>
inline constexpr T inv_pi_v = T(0.3183098861837906715377675267450287240689192914809);
template <typename T>
inline constexpr T inv_sqrtpi_v = T(0.5641895835477562869480794515607725858440506293290);
template <typename T>
inline constexpr T ln2_v = T(0.6931471805599453094172321214581765680755001343603);
template <typename T>
inline constexpr T ln10_v = T(2.3025850929940456840179914546843642076011014886288);
template <typename T>
inline constexpr T sqrt2_v = T(1.4142135623730950488016887242096980785696718753769);
template <typename T>
inline constexpr T sqrt3_v = T(1.7320508075688772935274463415058723669428052538104);
template <typename T>
inline constexpr T inv_sqrt3_v = T(0.5773502691896257645091487805019574556476018251270);
}  // namespace numbers
}  // namespace std

namespace tessera {

// Half types: storage, computed with in float, rounded to nearest even.
#ifdef TESSERA_EMULATED
TESSERA_DEVICE uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits;
}
TESSERA_DEVICE float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
TESSERA_DEVICE uint16_t bf16_bits(float x) {
  const uint32_t wide = bits_of(x);
  if ((wide & 0x7FFFFFFFU) > 0x7F800000U) return uint16_t(wide >> 16 | 0x40U);
  return uint16_t((wide + 0x7FFFU + (wide >> 16 & 1U)) >> 16);
}
TESSERA_DEVICE uint16_t f16_bits(float x) {
  const uint32_t wide = bits_of(x);
  const uint32_t sign = wide >> 16 & 0x8000U;
  const uint32_t magnitude = wide & 0x7FFFFFFFU;
  uint32_t half;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U;
  } else if (magnitude >= 0x477FF000U) {
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {
    half = bits_of(float_of(magnitude) + 0.5F) - 0x3F000000U;
  } else {
    half = (magnitude + 0xC8000FFFU + (magnitude >> 13 & 1U)) >> 13;
  }
  return uint16_t(sign | half);
}
TESSERA_DEVICE float f16_value(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000U) << 16;
  const uint32_t rest = bits & 0x7FFFU;
  if (rest >= 0x7C00U) return float_of(sign | rest << 13 | 0x7F800000U);
  if (rest >= 0x0400U) return float_of(sign | ((rest << 13) + 0x38000000U));
  return float_of(sign | bits_of(float(rest) * 0x1p-24F));
}
#else
TESSERA_DEVICE uint32_t bits_of(float x) { return __float_as_uint(x); }
TESSERA_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
TESSERA_DEVICE uint16_t bf16_bits(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
TESSERA_DEVICE uint16_t f16_bits(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
TESSERA_DEVICE float f16_value(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
#endif

struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  TESSERA_DEVICE BFloat16(float x) : bits(bf16_bits(x)) {}
  TESSERA_DEVICE operator float() const { return float_of(uint32_t(bits) << 16); }
};
struct Float16 {
  uint16_t bits;
  Float16() = default;
  TESSERA_DEVICE Float16(float x) : bits(f16_bits(x)) {}
  TESSERA_DEVICE operator float() const { return f16_value(bits); }
};

}  // namespace tessera

// The names of dtypes, and the type that elements of each are computed in.
using f32 = float;
using f64 = double;
using bf16 = tessera::BFloat16;
using f16 = tessera::Float16;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
template <typename T>
struct Computed {
  using type = T;
};
template <>
struct Computed<bf16> {
  using type = float;
};
template <>
struct Computed<f16> {
  using type = float;
};
template <typename T>
using compute_t = typename Computed<T>::type;

template <typename T>
TESSERA_DEVICE compute_t<T> wide(T x) {
  return static_cast<compute_t<T>>(x);
}

// Converts as copy_elements of the host does: values out of an integer's range saturate, NaN becomes 0, a non-zero
// becomes true.
template <typename To, typename From>
TESSERA_DEVICE To converted(From from) {
  const compute_t<From> x = wide(from);
  using C = compute_t<From>;
  if constexpr (std::is_same_v<To, bool>) {
    return x != C(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<C>) {
    constexpr bool kSigned = std::is_signed_v<To>;
    constexpr To kMax = kSigned ? To(~(uint64_t(1) << (sizeof(To) * 8 - 1)) & (~uint64_t(0) >> (64 - sizeof(To) * 8)))
                                : To(~uint64_t(0));
    constexpr To kMin = kSigned ? To(uint64_t(1) << (sizeof(To) * 8 - 1)) : To(0);
    if (x != x) return To(0);
    if (x >= C(kMax)) return kMax;
    if (x <= C(kMin)) return kMin;
    return To(x);
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<C> && !std::is_same_v<C, bool>) {
    constexpr bool kSigned = std::is_signed_v<To>;
    constexpr To kMax = kSigned ? To(~(uint64_t(1) << (sizeof(To) * 8 - 1)) & (~uint64_t(0) >> (64 - sizeof(To) * 8)))
                                : To(~uint64_t(0));
    constexpr To kMin = kSigned ? To(uint64_t(1) << (sizeof(To) * 8 - 1)) : To(0);
    if constexpr (std::is_signed_v<C>) {
      if (x < C(0)) {
        if constexpr (!kSigned) return To(0);
        return int64_t(x) < int64_t(kMin) ? kMin : To(x);
      }
    }
    return uint64_t(x) > uint64_t(kMax) ? kMax : To(x);
  } else if constexpr (std::is_same_v<To, bf16> || std::is_same_v<To, f16>) {
    return To(static_cast<float>(x));
  } else {
    return To(x);
  }
}

// Several elements that are read and written at once, by an address that is a multiple of their size.
template <typename T, int kCount>
struct __align__(sizeof(T) * kCount) Pack {
  T values[kCount];
  TESSERA_DEVICE T& operator[](int i) { return values[i]; }
  TESSERA_DEVICE const T& operator[](int i) const { return values[i]; }
};
