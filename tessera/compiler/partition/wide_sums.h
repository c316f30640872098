// Sums of half types of which a rank has only a part: they are made, passed on and added in f32, and rounded once, when
// they are whole, so that a result does not depend on how the graph is split. Internal to the compiler.
#pragma once

#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {

// Writes a node into a rank's graph: as its operator says, but what it leaves of partial sums of half types is f32.
// Operands may be such sums.
std::vector<ir::Value> localize_node(const ops::OpDef& def, const ops::LocalizeContext& context);

// The dtype in which such parts of sums of `dtype` are.
DType dtype_of_parts(DType dtype);

}  // namespace tessera::compiler
