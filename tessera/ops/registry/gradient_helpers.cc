#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {

Value scalar(ir::Graph& graph, DType dtype, double value) {
  return apply(graph, "fill", {}, {{"shape", Ints{}}, {"value", value}, {"dtype", dtype}}).at(0);
}

Value scalar_like(Value like, double value) { return scalar(like.graph(), like.dtype(), value); }

Value cast_to(Value x, DType dtype) { return x.dtype() == dtype ? x : apply1("cast", {x}, {{"dtype", dtype}}); }

Value scale_by(Value x, double factor) {
  if (factor == 1) return x;
  const Value wide = size_bytes(x.dtype()) == 2 ? cast_to(x, DType::kF32) : x;
  return cast_to(apply1("mul", {wide, scalar_like(wide, factor)}), x.dtype());
}

Value reshape_to(Value x, Shape shape) {
  return x.shape() == shape ? x : apply1("reshape", {x}, {{"shape", ints_of(shape)}});
}

Value broadcast_to_shape(Value x, Shape shape) {
  return x.shape() == shape ? x : apply1("broadcast_to", {x}, {{"shape", ints_of(shape)}});
}

Value sum_to(Value x, Shape shape) {
  const int added = x.ndim() - shape.ndim();
  Ints axes;
  Ints stretched;
  for (int dim = 0; dim < x.ndim(); ++dim) {
    if (dim >= added && shape[dim - added] == x.shape()[dim]) continue;
    axes.push_back(dim);
    if (dim >= added) stretched.push_back(dim - added);
  }
  if (axes.empty()) return x;
  const Value sum = apply1("reduce_sum", {x}, {{"axes", axes}, {"keep_dims", false}});
  // Not keep_dims: one node sums the added and the stretched dims at once.
  return stretched.empty() ? sum : apply1("expand_dims", {sum}, {{"axes", stretched}});
}

}  // namespace tessera::ops
