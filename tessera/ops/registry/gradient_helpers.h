// What the gradient functions of the operators share. Internal to ops/. All of them add no node where none is
// needed. Shapes are taken by value: x.shape() refers into the graph, which adding a node moves.
#pragma once

#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// A constant of shape [].
Value scalar(ir::Graph& graph, DType dtype, double value);
// A constant of shape [] with the graph and dtype of `like`.
Value scalar_like(Value like, double value);
Value cast_to(Value x, DType dtype);
// x times a constant; half types in f32, where 1 / (a large count) is neither 0 nor coarse.
Value scale_by(Value x, double factor);
Value reshape_to(Value x, Shape shape);
Value broadcast_to_shape(Value x, Shape shape);
// The transpose of broadcasting from `shape`: sums x over the dims that broadcasting added or stretched.
Value sum_to(Value x, Shape shape);

// A shape as an attribute value.
inline Ints ints_of(const Shape& shape) { return shape.to_vector(); }

}  // namespace tessera::ops
