// A plan's choices as a file that people can read, edit and load again: JSON, one line for each operator. Operators are
// named by where they come from, so that the file also says how to split another graph of the same network: that of an
// evaluation, of another batch size, of one part of an accumulated step.
//
//   {
//   "format": "tessera plan", "version": 1, "graph": "1f0c62a95d3b8e44",
//   "mesh": [["x", 4], ["y", 2]],
//   "predicted": {"seconds": 0.0133, "added_up": 0.0151, "added_up_by_search": 0.0153, "bound": 0.0152},
//   "inputs": {
//   "fc.weight": "[y,_]"
//   },
//   "copies": {
//   "%12": "[x,_]"
//   },
//   "operators": [
//   {"operator": "fc:matmul", "split": {"m": ["x"], "n": ["y"]}},
//   {"operator": "fc:matmul#2", "gradient": true, "split": {"m": ["x"]}, "partial": {"y": [0]}}
//   ]
//   }
//
// "predicted" has a step's seconds by simulation, the sum of its operators' and ways' seconds, nothing beside anything
// else, the same sum where each reader's way counts (PlanCost::searched_seconds), and what no plan's sum of that kind
// is below: the first sum may be. "copies" has values that are moved once for several readers, as the graph's text
// names them, and where to. "split" has the factors of the operator's rule and the axes that split them, outer first;
// "partial" the axes whose partial sums pass through, with the operands that hold them; "blocks", where they matter,
// how many elements of a factor's dims stay together
// ({"m": 64}: the rows of a sample). What is not listed is not split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compiler/search/search_problem.h"

namespace tessera::compiler {

// How a record names an operator of a graph: "CELL:OPERATOR", with "#2" and so on for further ones; gradients count
// apart.
struct OperatorName {
  std::string text;
  bool is_gradient = false;
  auto operator<=>(const OperatorName&) const = default;
};
// The names by NodeId.
std::vector<OperatorName> operator_names(const ir::Graph& graph);

struct PlanRecord {
  std::string graph_hash;  // the hash of the graph that it was made for
  mesh::Mesh mesh;
  double seconds = 0;                  // what a step takes in a simulation; 0: not known
  double added_seconds = 0;            // PlanCost::seconds() of the plan; 0: none
  double searched_seconds = 0;         // PlanCost::searched_seconds() of it; 0: none, infinite: no search counts it
  double bound = -solver::kForbidden;  // PlanCost::searched_seconds() of no plan is below; minus infinity: not proven
  std::map<std::string, mesh::Sharding> inputs;
  std::map<std::string, mesh::Sharding> copies;
  std::map<OperatorName, NodeChoice> operators;
};

// 16 hexadecimal digits of the graph's text.
std::string hash_of(const ir::Graph& graph);

PlanRecord record_plan(const ir::Graph& graph, const PlanChoices& choices, double seconds = 0,
                       double bound = -solver::kForbidden);
// What the record says of a graph. For the graph that it was made for the choices are complete; for another graph it
// takes what has the same name, as far as it fits: how operators are split, not which partial sums pass through nor
// what is copied. Throws InvalidArgument naming the operator or input where the record was made for this graph, or
// edited, and does not fit.
PlanChoices choices_for(const ir::Graph& graph, const PlanRecord& record);
// How much of the record a graph has that it was not made for: "is for another graph: 3 of its 12 operators are here,
// the others of this graph are not split". Empty for the graph that it was made for.
std::string difference_text(const ir::Graph& graph, const PlanRecord& record);

std::string to_json(const PlanRecord& record);
// Throws InvalidArgument naming `file` and the member that is wrong.
PlanRecord parse_plan_record(std::string_view text, const std::string& file);

}  // namespace tessera::compiler
