#include "tessera/ops/functions/shape_functions.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/ops/functions/function_helpers.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/require.h"

namespace tessera::ops {

Value reshape(Value x, const Ints& shape) {
  Ints sizes = shape;
  int64_t known = 1;
  auto open = sizes.end();
  for (auto it = sizes.begin(); it != sizes.end(); ++it) {
    if (*it != -1) {
      known = product_of_sizes(known, *it);
    } else if (open == sizes.end()) {
      open = it;
    } else {
      throw InvalidArgument("reshape: only one size of [{}] may be -1", fmt::join(shape, ","));
    }
  }
  if (open != sizes.end()) {
    if (known <= 0 || x.shape().num_elements() % known != 0) {
      throw InvalidArgument("reshape: the {} elements of {} leave no size for -1 in [{}]", x.shape().num_elements(),
                            x.type(), fmt::join(shape, ","));
    }
    *open = x.shape().num_elements() / known;
  }
  return apply1("reshape", {x}, {{"shape", sizes}});
}

Value flatten(Value x) {
  if (x.ndim() == 0) throw InvalidArgument("flatten: needs at least one dim, got {}", x.type());
  int64_t rest = 1;
  for (int d = 1; d < x.ndim(); ++d) rest *= x.shape()[d];
  return reshape_to(x, {x.shape()[0], rest});
}

Value transpose(Value x, const Ints& perm) {
  Ints dims;
  if (perm.empty()) {
    for (int d = x.ndim() - 1; d >= 0; --d) dims.push_back(d);
  } else {
    for (const auto dim : perm) dims.push_back(normalize_axis(dim, x.ndim(), "transpose"));
  }
  return apply1("transpose", {x}, {{"perm", dims}});
}

Value squeeze(Value x, const Ints& axes) {
  Ints dropped = sorted_axes(axes, x.ndim(), "squeeze");
  if (axes.empty()) {
    for (int d = 0; d < x.ndim(); ++d) {
      if (x.shape()[d] == 1) dropped.push_back(d);
    }
  }
  return apply1("squeeze", {x}, {{"axes", dropped}});
}

Value expand_dims(Value x, const Ints& axes) {
  return apply1("expand_dims", {x},
                {{"axes", sorted_axes(axes, x.ndim() + static_cast<int>(axes.size()), "expand_dims")}});
}

Value concat(const std::vector<Value>& values, int64_t axis) {
  const auto operands = promoted(values, "concat");
  const int dim = normalize_axis(axis, operands[0].ndim(), "concat");
  return apply(operands[0].graph(), "concat", operands, {{"axis", int64_t{dim}}}).at(0);
}

Value stack(const std::vector<Value>& values, int64_t axis) {
  std::vector<Value> operands = promoted(values, "stack");
  const int dim = normalize_axis(axis, operands[0].ndim() + 1, "stack");
  for (Value& value : operands) value = expand_dims(value, {dim});
  return concat(operands, dim);
}

std::vector<Value> split(Value x, int64_t num_parts, int64_t axis) {
  const int dim = normalize_axis(axis, x.ndim(), "split");
  if (num_parts < 1 || x.shape()[dim] % num_parts != 0) {
    throw InvalidArgument("split: dim {} of {} cannot be cut into {} equal parts; use split_sizes", dim, x.type(),
                          num_parts);
  }
  return split_sizes(x, Ints(static_cast<size_t>(num_parts), x.shape()[dim] / num_parts), dim);
}

std::vector<Value> split_sizes(Value x, const Ints& sizes, int64_t axis) {
  return apply("split", {x}, {{"axis", int64_t{normalize_axis(axis, x.ndim(), "split")}}, {"sizes", sizes}});
}

Value slice(Value x, const Ints& begin, const Ints& end, const Ints& strides) {
  const auto ndim = static_cast<size_t>(x.ndim());
  if (begin.size() > ndim || end.size() != begin.size() || strides.size() > begin.size()) {
    throw InvalidArgument(
        "slice: begin and end must have equally many entries, at most the {} dims of {}, and strides "
        "no more; got {}, {} and {}",
        ndim, x.type(), begin.size(), end.size(), strides.size());
  }
  Ints from(ndim, 0);
  Ints to = ints_of(x.shape());
  Ints steps(ndim, 1);
  for (size_t d = 0; d < begin.size(); ++d) {
    const int64_t size = to[d];
    const int64_t step = d < strides.size() ? strides[d] : 1;
    if (step == 0) throw InvalidArgument("slice: the stride of dim {} must not be 0", d);
    // Where an index is clamped to, and where the walk ends of itself.
    const int64_t low = step > 0 ? 0 : -1;
    const int64_t high = step > 0 ? size : size - 1;
    const auto clamped = [&](int64_t index) { return std::clamp(index < 0 ? index + size : index, low, high); };
    from[d] = clamped(begin[d]);
    to[d] = end[d] == kToEnd ? (step > 0 ? size : -1) : clamped(end[d]);
    // A longer step takes the first element alone, too, and its multiples are numbers.
    steps[d] = std::clamp(step, -std::max<int64_t>(size, 1), std::max<int64_t>(size, 1));
  }
  return apply1("strided_slice", {x}, {{"begin", from}, {"end", to}, {"strides", steps}});
}

Value pad(Value x, const Ints& before, const Ints& after, double value) {
  return apply1("pad", {x}, {{"before", before}, {"after", after}, {"value", value}});
}

Value tile(Value x, const Ints& multiples) {
  Ints times = multiples;
  Shape shape = x.shape();
  const auto ndim = static_cast<size_t>(x.ndim());
  if (times.size() < ndim) times.insert(times.begin(), ndim - times.size(), 1);
  if (times.size() > ndim) {
    Ints sizes(times.size() - ndim, 1);
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    shape = Shape(sizes);
  }
  return apply1("tile", {reshape_to(x, shape)}, {{"multiples", times}});
}

Value broadcast_to(Value x, const Ints& shape) {
  Ints sizes = shape;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto dim = static_cast<int64_t>(d) + x.ndim() - static_cast<int64_t>(sizes.size());
    if (sizes[d] == -1 && dim < 0) {
      throw InvalidArgument("broadcast_to: dim {} of [{}] is new to {} and needs a size", d, fmt::join(shape, ","),
                            x.type());
    }
    if (sizes[d] == -1) sizes[d] = x.shape()[static_cast<int>(dim)];
  }
  return apply1("broadcast_to", {x}, {{"shape", sizes}});
}

}  // namespace tessera::ops
