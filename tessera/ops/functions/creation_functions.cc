#include "tessera/ops/functions/creation_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {
namespace {

Attributes random_attributes(const Shape& shape, DType dtype, const RandomSource& source) {
  return {{"shape", ints_of(shape)},
          {"dtype", dtype},
          {"seed", static_cast<int64_t>(source.seed)},
          {"stream", static_cast<int64_t>(source.stream)}};
}

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

}  // namespace

Value fill(ir::Graph& graph, const Shape& shape, double value, DType dtype) {
  return apply(graph, "fill", {}, {{"shape", ints_of(shape)}, {"value", value}, {"dtype", dtype}}).at(0);
}

Value zeros_like(Value x) { return apply1("zeros_like", {x}); }
Value ones_like(Value x) { return apply1("ones_like", {x}); }

Value constant(ir::Graph& graph, const Tensor& tensor) {
  const auto values = tensor.to_doubles();
  if (is_integer(tensor.dtype())) {
    for (const double value : values) {
      if (std::abs(value) >= 0x1p53) throw InvalidArgument("constant: {} is beyond 2^53; make it an input", value);
    }
  }
  return apply(graph, "constant", {},
               {{"dtype", tensor.dtype()}, {"shape", ints_of(tensor.shape())}, {"values", values}})
      .at(0);
}

Value range(ir::Graph& graph, double start, double limit, double delta, DType dtype) {
  Attributes attributes{{"start", start}, {"limit", limit}, {"delta", delta}, {"dtype", dtype}};
  if (!is_floating(dtype)) {
    if (start != std::floor(start) || delta != std::floor(delta)) {
      throw InvalidArgument("range: start {} and delta {} must be whole for {}", start, delta, dtype);
    }
    constexpr double kEnd = 0x1p63;
    const double steps = std::max(std::ceil((limit - start) / delta) - 1, 0.0);
    const auto is_int64 = [](double number) { return number >= -kEnd && number < kEnd; };
    if (std::isfinite(limit) && std::isfinite(delta) && delta != 0) {
      if (!is_int64(start) || !is_int64(start + steps * delta) || (steps > 0 && !is_int64(delta))) {
        throw InvalidArgument("range: {} to {} by {} has elements that are no int64", start, limit, delta);
      }
      attributes.set("start", static_cast<int64_t>(start));
      // A step that is no int64 is never taken.
      attributes.set("delta", is_int64(delta) ? static_cast<int64_t>(delta) : delta > 0 ? kLargest : -kLargest);
    }
  }
  return apply(graph, "range", {}, attributes).at(0);
}

Value random_uniform(Value step, const Shape& shape, const RandomSource& source, double low, double high, DType dtype) {
  Attributes attributes = random_attributes(shape, dtype, source);
  attributes.set("low", low);
  attributes.set("high", high);
  return apply1("random_uniform", {step}, attributes);
}

Value random_normal(Value step, const Shape& shape, const RandomSource& source, double mean, double sigma,
                    DType dtype) {
  Attributes attributes = random_attributes(shape, dtype, source);
  attributes.set("mean", mean);
  attributes.set("sigma", sigma);
  return apply1("random_normal", {step}, attributes);
}

Value random_truncated_normal(Value step, const Shape& shape, const RandomSource& source, double sigma, DType dtype) {
  Attributes attributes = random_attributes(shape, dtype, source);
  attributes.set("sigma", sigma);
  return apply1("random_truncated_normal", {step}, attributes);
}

Value dropout(Value x, Value step, double keep_prob, const RandomSource& source) {
  if (keep_prob == 1) return x;
  return apply1("dropout", {x, step},
                {{"keep_prob", keep_prob},
                 {"seed", static_cast<int64_t>(source.seed)},
                 {"stream", static_cast<int64_t>(source.stream)}});
}

Value one_hot(Value indices, int64_t depth, Value on, Value off, int64_t axis) {
  return apply1("one_hot", {indices, on, off},
                {{"depth", depth}, {"axis", int64_t{normalize_axis(axis, indices.ndim() + 1, "one_hot")}}});
}

Value one_hot(Value indices, int64_t depth, DType dtype, int64_t axis) {
  return one_hot(indices, depth, scalar(indices.graph(), dtype, 1), scalar(indices.graph(), dtype, 0), axis);
}

Value gather(Value table, Value indices, int64_t axis) {
  return apply1("gather", {table, indices}, {{"axis", int64_t{normalize_axis(axis, table.ndim(), "gather")}}});
}

Value scatter_add(Value base, Value indices, Value updates, int64_t axis) {
  return apply1("scatter_add", {base, indices, cast_to(updates, base.dtype())},
                {{"axis", int64_t{normalize_axis(axis, base.ndim(), "scatter_add")}}});
}

}  // namespace tessera::ops
