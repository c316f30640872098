// A gradient that the network's author writes himself, in place of the one that follows from the operators.
#pragma once

#include <span>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

// The values `outputs`, whose cotangents go back as `backward` says: the operators that made them are not
// differentiated. backward is a graph of its own. Its inputs are "$x<i>", "$out<i>" and "$dout<i>", of the types of
// inputs[i] and outputs[i], and parameters and states by name, as `outputs` have them. Its results "$dx<i>" are the
// cotangents of inputs[i], of their types; an input without one gets none, and so does every parameter. Throws
// InvalidArgument where a result is of another type, or where backward assigns to a parameter.
std::vector<ir::Value> with_gradient(std::span<const ir::Value> outputs, std::span<const ir::Value> inputs,
                                     const ir::Graph& backward);

}  // namespace tessera::ops
