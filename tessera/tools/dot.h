// Graphs as Graphviz reads them: `tessera graph mlp --stage local --format dot | dot -Tsvg > mlp.svg`.
//
// Nodes stand in boxes named for their cells, cells within cells; gradients are drawn round, collectives coloured.
// Edges carry types; in a plan shardings, and in red what is redistributed on the way.
#pragma once

#include <string>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

std::string dot_of(const ir::Graph& graph);
// The logical graph with its plan.
std::string dot_of(const ir::Graph& graph, const compiler::Plan& plan);
// One box for each lane, steps in their order.
std::string dot_of(const ir::Schedule& schedule);

}  // namespace tessera::tools
