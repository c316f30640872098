// Type: what is known of a value before it is computed: dtype and shape. Text: f32[32,64]; a scalar is f32[].
#pragma once

#include <string>
#include <string_view>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/shape.h"

namespace tessera {

struct Type {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t size_bytes() const { return shape.num_elements() * static_cast<int64_t>(tessera::size_bytes(dtype)); }
  std::string to_string() const { return std::string(tessera::to_string(dtype)) + shape.to_string(); }
  bool operator==(const Type&) const = default;
};

// Throws InvalidArgument naming the text.
Type parse_type(std::string_view text);

}  // namespace tessera

template <>
struct fmt::formatter<tessera::Type> : fmt::formatter<std::string> {
  auto format(const tessera::Type& type, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(type.to_string(), context);
  }
};
template <>
struct fmt::formatter<tessera::DType> : fmt::formatter<std::string> {
  auto format(tessera::DType dtype, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(tessera::to_string(dtype), context);
  }
};
