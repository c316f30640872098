// These functions reduce. `axes` names the dims to reduce, in any order; none means all. Reduced dims disappear, or
// keep size 1 with keep_dims. All throw InvalidArgument for an axis outside [-ndim, ndim) or named twice.
#pragma once

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// The reduction of that name, with what is said above.
Value reduce(const std::string& op, Value x, const Ints& axes, bool keep_dims);

// Numeric dtypes; bool is counted in i32. 0 over nothing. Half types are added in f32.
Value reduce_sum(Value x, const Ints& axes = {}, bool keep_dims = false);
// Floating dtypes; integers and bool are averaged in f32. NaN over nothing.
Value reduce_mean(Value x, const Ints& axes = {}, bool keep_dims = false);
// Takes numeric dtypes. Over nothing it is minus infinity or the lowest integer. Elements that tie share the gradient
// equally.
inline Value reduce_max(Value x, const Ints& axes = {}, bool keep_dims = false) {
  return reduce("reduce_max", x, axes, keep_dims);
}
// Takes numeric dtypes. Over nothing it is infinity or the highest integer. Elements that tie share the gradient
// equally.
inline Value reduce_min(Value x, const Ints& axes = {}, bool keep_dims = false) {
  return reduce("reduce_min", x, axes, keep_dims);
}
// Takes numeric dtypes. Over nothing it is 1. Its gradient is right where elements are 0.
inline Value reduce_prod(Value x, const Ints& axes = {}, bool keep_dims = false) {
  return reduce("reduce_prod", x, axes, keep_dims);
}
// bool operand and result: whether all (true over nothing), or any (false over nothing), hold.
inline Value reduce_all(Value x, const Ints& axes = {}, bool keep_dims = false) {
  return reduce("reduce_all", x, axes, keep_dims);
}
inline Value reduce_any(Value x, const Ints& axes = {}, bool keep_dims = false) {
  return reduce("reduce_any", x, axes, keep_dims);
}

// i32 index of the largest element along `axis`, the first of several; the axis disappears and must not be empty.
Value argmax(Value x, int64_t axis = -1);

struct TopK {
  Value values;   // x's dtype, [..., k], descending
  Value indices;  // i32[..., k]
};
// The k largest elements along the last dim; of equal ones the lower index first. k must be in [0, size of the dim].
TopK top_k(Value x, int64_t k);

// Running sums along `axis`; `exclusive` leaves out the element itself, `reverse` starts at the end.
Value cumsum(Value x, int64_t axis, bool exclusive = false, bool reverse = false);

}  // namespace tessera::ops
