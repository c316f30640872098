// The vocabulary of tests of cells: they trace one with symbols and look at the graph.
#pragma once

#include <string>
#include <vector>

#include "tessera/nn/cell.h"
#include "tessera/ops/verify.h"

namespace tessera::nn {

// The graph of cell(x), with x an input of that type; the result is the output "y". Verified.
inline ir::Graph trace(Cell& cell, const Type& type) {
  ir::Graph graph("forward");
  const Value y = cell(graph.add_input(ir::InputKind::kInput, "x", type));
  graph.add_output("y", y);
  graph.finish_assignments();
  ops::verify_or_throw(graph);
  return graph;
}

// The type of cell(x).
inline Type result_of(Cell& cell, const Type& type) {
  const auto graph = trace(cell, type);
  return graph.type(graph.find_output("y")->value);
}

inline std::string text_of(Cell& cell, const Type& type) { return ir::print(trace(cell, type)); }

inline std::vector<std::string> names_of(const std::vector<Parameter*>& parameters) {
  std::vector<std::string> names;
  for (const Parameter* parameter : parameters) names.push_back(parameter->full_name());
  return names;
}

inline std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> ops;
  for (ir::NodeId id = 0; id < graph.num_nodes(); ++id) ops.push_back(graph.node(id).op);
  return ops;
}

}  // namespace tessera::nn
