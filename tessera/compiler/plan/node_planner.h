// How one node is split: by its strategy, as its operands are, or by the batch. Internal to the compiler.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/plan/mesh_choice.h"
#include "tessera/compiler/plan/plan.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {

// The factors of a node that are split, in axes of mesh `mesh` of the choice.
struct StrategyFactors {
  int mesh = 0;
  FactorAxes factors;
};

// What is known when a node is reached.
struct PlanState {
  const ir::Graph& graph;
  const MeshChoice& mesh_choice;
  const PlanOptions& options;
  Plan& plan;
  // Whether a value is not set yet, by value. Unset: a parameter or state whose first user decides; a state, if it may
  // hold partial sums, on these as well. Derived: computed from the batch, by forward operators.
  std::vector<bool> unset;
  std::vector<bool> may_hold_partial;
  std::vector<bool> derived;
  std::vector<int> num_uses;
  std::vector<ir::NodeId> user = {};  // the last node that reads it
  // Parameters whose rows are shared for the optimizer's sake: how all but its updates read them.
  std::map<ir::ValueId, Placed> read_as;
  // Forward operators that take over a neighbour's strategy.
  std::map<ir::NodeId, StrategyFactors> propagated = {};
};

// The shardings that a rule gives to operands of these factors.
std::vector<mesh::Sharding> operand_shardings(const ops::IndexRule& rule, const FactorAxes& factors);
// Likewise the results': what is contracted leaves them partial.
std::vector<mesh::Sharding> result_shardings(const ops::IndexRule& rule, const FactorAxes& factors);

// Deals the dims of split factors in these blocks: those of operands, and of results what that makes of them.
void add_blocks(const ir::Graph& graph, ir::NodeId node, const mesh::Mesh& mesh, const FactorAxes& factors,
                const FactorBlocks& blocks, std::vector<mesh::Sharding>& operands,
                std::vector<mesh::Sharding>& results);
// The blocks in which operands of these shardings deal the factors' dims.
FactorBlocks blocks_of(const ir::Graph& graph, ir::NodeId node, const FactorAxes& factors,
                       const std::vector<mesh::Sharding>& operands);

// Makes the operands that hold partial sums partial, and all results with them (NodeChoice::through).
void add_partial_sums(const std::map<int, std::vector<int>>& through, std::vector<mesh::Sharding>& operands,
                      std::vector<mesh::Sharding>& results);

// The factors that the node's strategy splits.
StrategyFactors factors_of_strategy(const ir::Graph& graph, ir::NodeId node, const MeshChoice& mesh_choice);

// Decides on the node and writes what the plan says of it and of its results.
void plan_node(PlanState& state, ir::NodeId node);

}  // namespace tessera::compiler
