// Changes of shape and order; of any dtype. Axes and dims may be negative: they count from the end.
#pragma once

#include <limits>
#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// The same elements, row-major, with other dims. One size may be -1: what the others leave. Throws InvalidArgument when
// the number of elements differs, or -1 stands twice or cannot be told.
Value reshape(Value x, const Ints& shape);
// x[n, ...] -> [n, product of the rest].
Value flatten(Value x);
// Dim i of the result is dim perm[i] of x; without perm the dims are reversed.
Value transpose(Value x, const Ints& perm = {});
// Returns x without the dims `axes`, which must have size 1; none: without all dims of size 1.
Value squeeze(Value x, const Ints& axes = {});
// Returns x with new dims of size 1 at the places `axes` of the result.
Value expand_dims(Value x, const Ints& axes);

// One after the other along `axis`; all other dims must be equal. Mixed dtypes are promoted.
Value concat(const std::vector<Value>& values, int64_t axis = 0);
// Along a new dim at `axis` of the result; all shapes must be equal.
Value stack(const std::vector<Value>& values, int64_t axis = 0);
// Cuts x along `axis` into `num_parts` equal pieces. Throws InvalidArgument when they cannot be equal.
std::vector<Value> split(Value x, int64_t num_parts, int64_t axis = 0);
// Cut along `axis` into pieces of these sizes, whose sum must be the dim's size.
std::vector<Value> split_sizes(Value x, const Ints& sizes, int64_t axis = 0);

// An entry of slice()'s `end` that says: as far as the stride leads, as Python's empty place does.
inline constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();
// x[begin:end:stride, ...] with Python's meaning: negative indices count from the end, and what lies outside is cut
// off. One entry per dim; later dims that have none are whole, missing strides are 1. Throws InvalidArgument for a
// stride of 0.
Value slice(Value x, const Ints& begin, const Ints& end, const Ints& strides = {});
// Returns x with before[i] and after[i] elements of `value` around it along dim i.
Value pad(Value x, const Ints& before, const Ints& after, double value = 0.0);
// Repeated multiples[i] times along dim i; the shorter of shape and multiples is filled up with 1 in front.
Value tile(Value x, const Ints& multiples);
// Stretched as NumPy broadcasts; -1 keeps the size of x's dim.
Value broadcast_to(Value x, const Ints& shape);

}  // namespace tessera::ops
