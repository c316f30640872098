// What a collective computes, directly from the operands of all its members. Internal to testing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing_support {

// A rank that has arrived at a node of its graph.
struct CollectiveMember {
  int rank = 0;
  const ir::Graph* graph = nullptr;
  ir::NodeId id = 0;
  const Tensor* operand = nullptr;

  const ir::Node& node() const { return graph->node(id); }
  std::string place() const;  // `rank 1 is at all_reduce "loss", group "data" of ranks [0,1], order 3`
};

// The results of the members, given in the order of their group, of one operator and group. Throws InternalError naming
// members whose operands do not fit together.
std::vector<Tensor> run_collective(std::span<const CollectiveMember> members);

}  // namespace tessera::testing_support
