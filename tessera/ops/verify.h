// A graph is verified against the operators' definitions.
#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::ops {

// Every fault of the graph, one line each: unknown operators, attributes and numbers of inputs, types that shape
// inference does not give, uses before definitions, outputs named as inputs of another type. Empty: the graph is sound.
std::vector<std::string> verify(const ir::Graph& graph);

// Throws InvalidArgument listing all faults, unless there are none.
void verify_or_throw(const ir::Graph& graph);

}  // namespace tessera::ops
