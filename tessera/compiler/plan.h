// Plan: for every value of a logical graph the sharding it is produced in, and for every operand the sharding its node
// wants. Names no rank. Data parallel is no special case: shard the batch dim of the inputs and propagate.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/layout.h"

namespace tessera::compiler {

// Factor of a node's rule -> the mesh axes that split it, outer first.
using FactorAxes = std::map<std::string, std::vector<int>>;

struct Plan {
  mesh::Mesh mesh;
  std::vector<mesh::Sharding> values;                 // by ValueId: as produced; may be partial
  std::vector<std::vector<mesh::Sharding>> operands;  // by NodeId: what each input must be in
  std::vector<mesh::Sharding> outputs;                // by output of the graph: never partial
  std::vector<FactorAxes> factors;                    // by NodeId: the factors of the node's rule that are split
};

// Layouts of the graph's inputs by name, on meshes of the same ranks. An output with the name of an input takes the
// input's sharding, others are made whole along partial axes and stay split.
using ShardingHints = std::map<std::string, mesh::Layout>;
// Shardings that are all on one mesh.
ShardingHints on_mesh(const mesh::Mesh& mesh, const std::map<std::string, mesh::Sharding>& shardings);

struct PlanOptions {
  // Whether the strategies that nodes carry hold; else they are as if not there.
  bool strategies = true;
  // Semi-automatic parallelism: a forward operator without a strategy splits its batch over all ranks. Otherwise it
  // follows its operands.
  bool batch_by_default = false;
  // Parameters whose replicas share their rows (and with them the optimizer's states and work); gathered where used.
  std::set<std::string> optimizer_shards = {};
  // Results that are no parameter's or state's new value are made whole on every rank.
  bool whole_results = false;
  // Nodes that are split so whatever else is said, in axes of the plan's mesh: what a search has chosen.
  std::map<ir::NodeId, FactorAxes> fixed = {};
};

// Walks the graph once. A node with a strategy is split as it says; a gradient as its forward node is; others take,
// axis by axis, the split that most bytes of their operands already have and that their rule allows. An operand that is
// partial stays so where the operator is linear in it and that moves no more bytes, else it is completed first.
//
// An input without a hint: a parameter is split as the strategies of its users say, a state as its first user reads it,
// all else is replicated. The plan's mesh is `mesh`, cut finer where strategies and hints need it.
// Throws InvalidArgument naming an input whose hint does not fit it, a strategy that does not fit its operator, those
// that do not fit together, and a parameter that its users split differently, with all of them.
Plan propagate(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints,
               const PlanOptions& options = {});

// All replicated on one rank.
Plan single_device_plan(const ir::Graph& graph);

// One line per value, in the order of the graph's text; stable, for people and goldens.
std::string print(const ir::Graph& graph, const Plan& plan);

}  // namespace tessera::compiler
