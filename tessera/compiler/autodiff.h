// Reverse-mode differentiation of a logical graph, by adding nodes to it. Every gradient node names its forward node.
#pragma once

#include <span>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

// The gradients of sum(seed * value) with respect to each of `wrt`, each of its value's type; zeros where nothing
// depends on it. Where no seed is given, it is ones of the value's type. The cotangents of all values that the graph
// sends or receives are exchanged, too: the rank at the other end calls this as well. Throws InvalidArgument when
// `value` is not floating.
std::vector<ir::Value> gradients(ir::Value value, std::span<const ir::Value> wrt, ir::Value seed = {});

}  // namespace tessera::compiler
