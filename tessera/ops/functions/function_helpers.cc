#include "tessera/ops/functions/function_helpers.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {

Ints sorted_axes(const Ints& axes, int ndim, const std::string& who) {
  Ints result;
  for (const auto axis : axes) result.push_back(normalize_axis(axis, ndim, who));
  std::sort(result.begin(), result.end());
  if (const auto twice = std::adjacent_find(result.begin(), result.end()); twice != result.end()) {
    throw InvalidArgument("{}: axis {} is named twice in [{}]", who, *twice, fmt::join(axes, ","));
  }
  return result;
}

std::vector<Value> promoted(std::vector<Value> values, const std::string& who) {
  if (values.empty()) throw InvalidArgument("{}: needs at least one value", who);
  DType dtype = values[0].dtype();
  for (const Value& value : values) dtype = promote(dtype, value.dtype());
  for (Value& value : values) value = cast_to(value, dtype);
  return values;
}

}  // namespace tessera::ops
