// What shape inference asks of operands. Each throws InvalidArgument saying what must hold; apply() adds the operator
// and the operands' types.
#pragma once

#include <string_view>

#include "tessera/base/error.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/type.h"

namespace tessera::ops {

inline void require_ndim(const Type& type, int ndim, std::string_view what) {
  if (type.shape.ndim() != ndim) throw InvalidArgument("{} must have {} dims, has {}", what, ndim, type.shape.ndim());
}

inline void require_floating(const Type& type, std::string_view what) {
  if (!is_floating(type.dtype)) throw InvalidArgument("{} must be floating, is {}", what, type.dtype);
}

inline void require_dtype(const Type& type, DType dtype, std::string_view what) {
  if (type.dtype != dtype) throw InvalidArgument("{} must be {}, is {}; cast it", what, dtype, type.dtype);
}

inline void require_shape(const Type& type, const Shape& shape, std::string_view what) {
  if (!(type.shape == shape)) throw InvalidArgument("{} must be of shape {}, is {}", what, shape, type.shape);
}

inline void require_type(const Type& given, const Type& expected, std::string_view what) {
  require_dtype(given, expected.dtype, what);
  require_shape(given, expected.shape, what);
}

// Sizes that a user's numbers make.
inline int64_t product_of_sizes(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  throw InvalidArgument("{} times {} is more than an int64 counts", a, b);
}
inline int64_t sum_of_sizes(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  throw InvalidArgument("{} and {} are more than an int64 counts", a, b);
}

// The ints of attribute `name`, which must be `count` numbers, none below `least`.
inline const Ints& require_ints(const Attributes& attributes, std::string_view name, size_t count, int64_t least) {
  const Ints& values = attributes.get_ints(name);
  if (values.size() != count) {
    throw InvalidArgument("attribute {} must be {} numbers, has {}", name, count, values.size());
  }
  for (const int64_t value : values) {
    if (value < least) throw InvalidArgument("attribute {} must be at least {}, is {}", name, least, value);
  }
  return values;
}

// The dtype that statistics of values of `dtype` have: f32 for the half types, else `dtype`.
inline DType statistics_dtype(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype;
}

}  // namespace tessera::ops
