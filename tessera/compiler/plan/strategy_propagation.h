// Strategies of some operators carried to those that have none: each takes over the split of a neighbour, whichever
// moves least. An alternative to falling back on the batch.
#pragma once

#include <map>

#include "tessera/compiler/plan/node_planner.h"

namespace tessera::compiler {

// The factors of all forward operators that are connected, through operators without strategies, to one that has one;
// its own are not among them. The order is breadth-first from the strategies: an operator is offered the splits that
// its neighbours have so far and takes the one with the fewest bytes of redistribution on the edges to them, the first
// neighbour's among equals.
//
// An elementwise operator could follow each of its neighbours at no cost; where two of them want different splits
// nothing says which is meant. Throws InvalidArgument naming it, the operators with the strategies that both splits
// come from, and the splits. A cast may stand between two splits; and what comes from the strategy of a cast, which
// only says how a value lies (ops::lay_out()), gives way to any other.
std::map<ir::NodeId, StrategyFactors> propagate_strategies(const ir::Graph& graph, const MeshChoice& mesh_choice);

}  // namespace tessera::compiler
