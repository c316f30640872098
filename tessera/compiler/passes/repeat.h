// Recomputation: gradients read values that are computed once more, just before them, instead of values that were kept
// since the forward pass.
#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

struct Repeated {
  ir::Graph graph;
  std::vector<ir::NodeId> origin;  // by node: which of the old graph it is, or repeats
};

// `dropped`, by value: gradient nodes, and what is computed for them, read copies of these. A copy is made before the
// first that reads it, by a node like the one that made the value, from the same operands, which are copies where they
// are dropped, too; so the results are equal to the last bit. Dropped values must be results of forward nodes.
Repeated repeat_for_gradients(const ir::Graph& graph, const std::vector<bool>& dropped);

}  // namespace tessera::compiler
