// Plan: for every value of a logical graph the sharding it is produced in, and for every operand the sharding its node
// wants. Names no rank. Data parallel is no special case: shard the batch dim of the inputs and propagate.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::compiler {

struct Plan {
  mesh::Mesh mesh;
  std::vector<mesh::Sharding> values;                 // by ValueId: as produced; may be partial
  std::vector<std::vector<mesh::Sharding>> operands;  // by NodeId: what each input must be in
  std::vector<mesh::Sharding> outputs;                // by output of the graph: never partial
  // By NodeId: the factors of the node's rule that are split, with the mesh axes that split them, outer first.
  std::vector<std::map<std::string, std::vector<int>>> factors;
};

// Shardings of the graph's inputs by name; what is not named is replicated. An output with the name of an input takes
// the input's sharding, others are made whole along partial axes and stay split.
using ShardingHints = std::map<std::string, mesh::Sharding>;

// Walks the graph once: each node takes, axis by axis, the split that most bytes of its operands already have and that
// its rule allows; an operand that is partial stays so where the operator is linear in it, else it is completed first.
// Throws InvalidArgument naming an input whose hint does not fit it.
Plan propagate(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints);

// All replicated on one rank.
Plan single_device_plan(const ir::Graph& graph);

// One line per value, in the order of the graph's text; stable, for people and goldens.
std::string print(const ir::Graph& graph, const Plan& plan);

}  // namespace tessera::compiler
