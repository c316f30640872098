#include "tessera/ops/functions/reduce_functions.h"

#include <algorithm>
#include <numeric>

#include "tessera/ops/functions/function_helpers.h"
#include "tessera/ops/functions/shape_functions.h"
#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {
namespace {

// Whether an axis may be named of a value that has no dims: NumPy takes the two that a value of one dim has.
bool is_axis_of_scalar(int64_t axis) { return axis == 0 || axis == -1; }

}  // namespace

Value reduce(const std::string& op, Value x, const Ints& axes, bool keep_dims) {
  Ints all = axes;
  if (axes.empty() || (x.ndim() == 0 && axes.size() == 1 && is_axis_of_scalar(axes[0]))) {
    all.resize(static_cast<size_t>(x.ndim()));
    std::iota(all.begin(), all.end(), 0);
  }
  return apply1(op, {x}, {{"axes", sorted_axes(all, x.ndim(), op)}, {"keep_dims", keep_dims}});
}

Value reduce_sum(Value x, const Ints& axes, bool keep_dims) {
  return reduce("reduce_sum", x.dtype() == DType::kBool ? cast_to(x, DType::kI32) : x, axes, keep_dims);
}
Value reduce_mean(Value x, const Ints& axes, bool keep_dims) {
  return reduce("reduce_mean", is_floating(x.dtype()) ? x : cast_to(x, DType::kF32), axes, keep_dims);
}

Value argmax(Value x, int64_t axis) {
  if (x.ndim() == 0 && is_axis_of_scalar(axis)) return argmax(reshape(x, {1}), 0);
  return apply1("argmax", {x}, {{"axis", int64_t{normalize_axis(axis, x.ndim(), "argmax")}}});
}

TopK top_k(Value x, int64_t k) {
  const auto results = apply("top_k", {x}, {{"k", k}});
  return {results[0], results[1]};
}

Value cumsum(Value x, int64_t axis, bool exclusive, bool reverse) {
  return apply1(
      "cumsum", {x},
      {{"axis", int64_t{normalize_axis(axis, x.ndim(), "cumsum")}}, {"exclusive", exclusive}, {"reverse", reverse}});
}

}  // namespace tessera::ops
