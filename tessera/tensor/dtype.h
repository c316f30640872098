// A DType is the type of a tensor's elements. Compute kernels exist for f32 f64 bf16 f16 i32 i64 u8 bool; the others
// can be stored, loaded and cast. Text names are the ones printed here; parse_dtype also takes NumPy's and the
// reference's ("float32", "Float32").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/tensor/half.h"

namespace tessera {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64, kU8, kBool, kI8, kI16, kU16, kU32, kU64 };

size_t size_bytes(DType dtype);
const char* to_string(DType dtype);  // "f32"
// Throws InvalidArgument naming the text and the known names.
DType parse_dtype(std::string_view text);

bool is_floating(DType dtype);
bool is_integer(DType dtype);  // bool is not
// True for the eight types that compute kernels exist for.
bool is_compute(DType dtype);

// The type of a result of operands of types a and b: bool < integer < float, the wider wins; bf16 with f16 gives f32.
DType promote(DType a, DType b);

template <typename T>
struct DTypeOf;
// clang-format off: a table
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::kU64;
};
// clang-format on
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

[[noreturn]] void throw_unsupported_dtype(DType dtype, std::string_view who);

// Calls f(T{}) with the C++ type of `dtype`, one of the eight compute types; else throws InvalidArgument naming `who`.
template <typename F>
decltype(auto) dispatch_dtype(DType dtype, std::string_view who, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
    case DType::kF64: return f(double{});
    case DType::kBF16: return f(BFloat16{});
    case DType::kF16: return f(Float16{});
    case DType::kI32: return f(int32_t{});
    case DType::kI64: return f(int64_t{});
    case DType::kU8: return f(uint8_t{});
    case DType::kBool: return f(bool{});
    default: throw_unsupported_dtype(dtype, who);
  }
}

// The same for the four floating types only.
template <typename F>
decltype(auto) dispatch_floating(DType dtype, std::string_view who, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
    case DType::kF64: return f(double{});
    case DType::kBF16: return f(BFloat16{});
    case DType::kF16: return f(Float16{});
    default: throw_unsupported_dtype(dtype, who);
  }
}

// The same for every type, storage-only ones included.
template <typename F>
decltype(auto) dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI8: return f(int8_t{});
    case DType::kI16: return f(int16_t{});
    case DType::kU16: return f(uint16_t{});
    case DType::kU32: return f(uint32_t{});
    case DType::kU64: return f(uint64_t{});
    default: return dispatch_dtype(dtype, "", std::forward<F>(f));
  }
}

// The type that values of T are computed and accumulated in: f32 for the half types, f64 and the rest for themselves.
template <typename T>
using ComputeType = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

}  // namespace tessera
