// Plan: for every value of a logical graph the sharding it is produced in, and for every operand the sharding its node
// wants. Names no rank. Data parallel is no special case: shard the batch dim of the inputs and propagate.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/layout.h"

namespace tessera::compiler {

// Factor of a node's rule -> the mesh axes that split it, outer first.
using FactorAxes = std::map<std::string, std::vector<int>>;

// Factor of a node's rule -> how many elements of its dims stay together; those that are not there: 1.
using FactorBlocks = std::map<std::string, int64_t>;

// All that can be decided of one node.
struct NodeChoice {
  FactorAxes factors;
  // Axis -> the operands that hold partial sums over it, which pass through; no other operand is split along it.
  std::map<int, std::vector<int>> through = {};
  FactorBlocks blocks = {};  // the blocks of the operands
  bool operator==(const NodeChoice&) const = default;
};

struct Plan {
  // Grids of the same ranks. One, but for strategies that no grid holds together (3 x 2 and 2 x 3 parts on 6 ranks).
  std::vector<mesh::Mesh> meshes;
  std::vector<int> value_mesh;                        // by ValueId: the mesh that its sharding is on
  std::vector<int> node_mesh;                         // by NodeId: that of its operands, factors and results
  std::vector<mesh::Sharding> values;                 // by ValueId: as produced; may be partial
  std::vector<std::vector<mesh::Sharding>> operands;  // by NodeId: what each input must be in
  // Values that are brought into one sharding for several readers, on the value's mesh; each reader takes them from
  // there. Others go from where they are produced straight to each reader.
  std::map<ir::ValueId, mesh::Sharding> copies = {};
  std::vector<mesh::Sharding> outputs;  // by output of the graph: partial only if a state's new value is
  std::vector<FactorAxes> factors;      // by NodeId: the factors of the node's rule that are split

  const std::vector<int>& ranks() const { return meshes[0].ranks(); }
  const mesh::Mesh& mesh_of(ir::ValueId v) const { return meshes[index_of_value_mesh(v)]; }
  const mesh::Mesh& mesh_of_node(ir::NodeId n) const { return meshes[index_of_node_mesh(n)]; }
  mesh::Layout layout(ir::ValueId v) const { return {mesh_of(v), values[static_cast<size_t>(v)]}; }
  mesh::Layout operand_layout(ir::NodeId n, size_t input) const {
    return {mesh_of_node(n), operands[static_cast<size_t>(n)][input]};
  }
  // Where the readers of a value take it from.
  mesh::Layout source_layout(ir::ValueId v) const {
    const auto copy = copies.find(v);
    return copy == copies.end() ? layout(v) : mesh::Layout{mesh_of(v), copy->second};
  }
  // How output `index` lies, of the graph that the plan was made for.
  mesh::Layout output_layout(const ir::Graph& graph, size_t index) const;

 private:
  size_t index_of_value_mesh(ir::ValueId v) const { return static_cast<size_t>(value_mesh[static_cast<size_t>(v)]); }
  size_t index_of_node_mesh(ir::NodeId n) const { return static_cast<size_t>(node_mesh[static_cast<size_t>(n)]); }
};

// Layouts of the graph's inputs by name, on meshes of the same ranks. An output with the name of an input takes the
// input's sharding, others are made whole along partial axes and stay split.
using ShardingHints = std::map<std::string, mesh::Layout>;
// Shardings that are all on one mesh.
ShardingHints on_mesh(const mesh::Mesh& mesh, const std::map<std::string, mesh::Sharding>& shardings);

struct PlanRecord;  // search/plan_record.h

struct PlanOptions {
  // Whether the strategies that nodes carry hold; else they are as if not there.
  bool strategies = true;
  // Semi-automatic parallelism: a forward operator without a strategy splits its batch over all ranks. Otherwise it
  // follows its operands.
  bool batch_by_default = false;
  // Forward operators without a strategy take over those of their neighbours, as far as they reach; see
  // plan/strategy_propagation.h. What nothing reaches is split as if this were false.
  bool propagate_strategies = false;
  // Parameters whose replicas share their rows (and with them the optimizer's states and work); gathered where used.
  std::set<std::string> optimizer_shards = {};
  // Into how many parts an optimizer shard is cut at most, kept by neighbouring ranks; 0: all replicas share.
  int optimizer_shard_size = 0;
  // States that may hold partial sums: one that the first to read it adds to a partial sum becomes partial, too. What
  // is accumulated over several steps is then completed where it is used, once.
  std::set<std::string> partial_states = {};
  // Values whose partial sums no operator takes: what leaves a pipeline stage is whole.
  std::set<ir::ValueId> whole_sums = {};
  // Results that are no parameter's or state's new value are made whole on every rank.
  bool whole_results = false;
  // An operator that makes the new value of a parameter or state of nothing, as an initializer does, is split as that
  // lies. Else it makes the value whole, of which each rank takes its piece.
  bool makes_in_pieces = false;
  // Nodes that are split so whatever else is said, in axes of the plan's first mesh: what a search has chosen.
  std::map<ir::NodeId, NodeChoice> fixed = {};
  // A plan that was made before, of this graph or of another of the same network: it takes the place of strategies and
  // of the mesh that is given. Looked at by plan_ranks(), which knows the simplified graph that it speaks of.
  std::shared_ptr<const PlanRecord> record = nullptr;
  // Plan::copies, on the plan's first mesh.
  std::map<ir::ValueId, mesh::Sharding> copies = {};
};

// Walks the graph once. A node with a strategy is split as it says; a gradient as its forward node is; others take,
// axis by axis, the split that most bytes of their operands already have and that their rule allows. An operand that is
// partial stays so where the operator is linear in it and that moves no more bytes, else it is completed first.
//
// An input without a hint: a parameter is split as the strategies of its users say, another parameter or a state as its
// first user reads it, all else is replicated. The plan's first mesh is `mesh`, cut finer where strategies and hints
// need it; those that do not fit into that get a mesh of their own, and values move between meshes point to point.
// Throws InvalidArgument naming an input whose hint does not fit it, a strategy that does not fit its operator, and a
// parameter that its users split differently, with all of them.
Plan propagate(const ir::Graph& graph, const mesh::Mesh& mesh, const ShardingHints& hints,
               const PlanOptions& options = {});

// One line per value, in the order of the graph's text; stable, for people and goldens.
std::string print(const ir::Graph& graph, const Plan& plan);

}  // namespace tessera::compiler
