#include "tessera/nn/gradients/clipping.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

// The bound as `dtype` has it: no norm is beyond its largest number.
double bound_of(const char* who, double clip_norm, DType dtype) {
  require_positive(who, "clip_norm", clip_norm);
  return dtype == DType::kF64 ? clip_norm : std::min<double>(clip_norm, std::numeric_limits<float>::max());
}

// Squares of half types overflow.
ir::Value sum_of_squares(ir::Value x, const Ints& dims, bool keep_dims) {
  return ops::reduce_sum(ops::square(ops::cast(x, at_least_f32(x.dtype()))), dims, keep_dims);
}

}  // namespace

ir::Value clip_by_value(ir::Value x, std::optional<double> least, std::optional<double> most) {
  if (!least && !most) throw InvalidArgument("clip_by_value: one of the two bounds must be given");
  if (least) x = ops::maximum(x, *least);
  return most ? ops::minimum(x, *most) : x;
}

ir::Value clip_by_norm(ir::Value x, double clip_norm, const Ints& dims) {
  clip_norm = bound_of("clip_by_norm", clip_norm, at_least_f32(x.dtype()));
  const ir::Value squares = sum_of_squares(x, dims, /*keep_dims=*/true);
  // The root of 0 has no gradient.
  const ir::Value is_zero = ops::equal(squares, 0);
  const ir::Value norm = ops::select(is_zero, 0.0, ops::sqrt(ops::select(is_zero, 1.0, squares)));
  // The quotient first: x times a large bound overflows.
  return ops::cast(ops::cast(x, norm.dtype()) * (clip_norm / ops::maximum(norm, clip_norm)), x.dtype());
}

std::vector<ir::Value> clip_by_global_norm(std::span<const ir::Value> values, double clip_norm) {
  if (values.empty()) throw InvalidArgument("clip_by_global_norm: there are no values");
  ir::Value squares;
  for (const ir::Value& value : values) {
    const ir::Value own = sum_of_squares(value, {}, /*keep_dims=*/false);
    squares = squares ? ops::add(squares, own) : own;
  }
  clip_norm = bound_of("clip_by_global_norm", clip_norm, squares.dtype());
  const ir::Value scale = clip_norm / ops::maximum(ops::sqrt(squares), clip_norm);
  std::vector<ir::Value> clipped;
  for (const ir::Value& value : values) {
    clipped.push_back(ops::cast(ops::cast(value, scale.dtype()) * scale, value.dtype()));
  }
  return clipped;
}

}  // namespace tessera::nn
