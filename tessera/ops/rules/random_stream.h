// The attributes of operators that draw random numbers: who draws, and which piece of the whole value a node makes.
// Internal to ops/.
#pragma once

#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// seed and stream, which name the draws, and the slice of slice_attributes().
std::vector<AttributeDef> stream_attributes();
// global_shape and offset: the tensor that a node's result is a slice of, and where in it.
std::vector<AttributeDef> slice_attributes();

// Throws InvalidArgument unless seed, stream and the step i64[] are there and the slice, of that shape, lies inside the
// global shape.
void check_stream(const Attributes& attributes, const Type& step, const Shape& shape);
void check_step(const Type& step);
void check_slice(const Attributes& attributes, const Shape& shape);

// The coordinates of this rank's slice of the first result: draws depend on no layout.
void localize_stream(const LocalizeContext& context, Attributes& attributes);

}  // namespace tessera::ops
