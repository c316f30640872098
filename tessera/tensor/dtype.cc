#include "tessera/tensor/dtype.h"

#include <algorithm>
#include <cctype>

#include "tessera/base/error.h"

namespace tessera {
namespace {

struct DTypeFacts {
  DType dtype;
  const char* name;
  const char* long_name;
  size_t size_bytes;
};

constexpr DTypeFacts kFacts[] = {
    {DType::kF32, "f32", "float32", 4}, {DType::kF64, "f64", "float64", 8}, {DType::kBF16, "bf16", "bfloat16", 2},
    {DType::kF16, "f16", "float16", 2}, {DType::kI32, "i32", "int32", 4},   {DType::kI64, "i64", "int64", 8},
    {DType::kU8, "u8", "uint8", 1},     {DType::kBool, "bool", "bool", 1},  {DType::kI8, "i8", "int8", 1},
    {DType::kI16, "i16", "int16", 2},   {DType::kU16, "u16", "uint16", 2},  {DType::kU32, "u32", "uint32", 4},
    {DType::kU64, "u64", "uint64", 8},
};

const DTypeFacts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

}  // namespace

size_t size_bytes(DType dtype) { return facts(dtype).size_bytes; }
const char* to_string(DType dtype) { return facts(dtype).name; }

DType parse_dtype(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower.ends_with("_")) lower.pop_back();  // NumPy's bool_
  for (const auto& f : kFacts) {
    if (lower == f.name || lower == f.long_name) return f.dtype;
  }
  throw InvalidArgument(
      "unknown dtype \"{}\"; known: f32 f64 bf16 f16 i32 i64 u8 bool i8 i16 u16 u32 u64 (or float32, int64, ...)",
      text);
}

bool is_floating(DType dtype) { return dtype <= DType::kF16; }
bool is_integer(DType dtype) { return dtype > DType::kF16 && dtype != DType::kBool; }
bool is_compute(DType dtype) { return dtype <= DType::kBool; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  const auto rank = [](DType d) { return d == DType::kBool ? 0 : is_integer(d) ? 1 : 2; };
  if (rank(a) != rank(b)) return rank(a) > rank(b) ? a : b;
  if (size_bytes(a) != size_bytes(b)) return size_bytes(a) > size_bytes(b) ? a : b;
  if (is_floating(a)) return DType::kF32;  // bf16 with f16
  // Equal width, one signed and one not: the next wider signed type holds both.
  switch (size_bytes(a)) {
    case 1: return DType::kI16;
    case 2: return DType::kI32;
    default: return DType::kI64;
  }
}

void throw_unsupported_dtype(DType dtype, std::string_view who) {
  throw InvalidArgument("{}: dtype {} is not supported", who, to_string(dtype));
}

}  // namespace tessera
