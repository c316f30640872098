// The operators of a planned step as rows of a table: those of equal layers that are split alike are one row.
#pragma once

#include <string>
#include <vector>

#include "tessera/tools/plan/plan_step.h"

namespace tessera::tools {

struct PlanRow {
  std::string name;  // "blocks.0-11.attention.dense1:matmul"
  bool is_gradient = false;
  std::string strategy;  // "((4,1),(1,2))"
  std::string split;     // what split_text gives
  int count = 1;
  // Sums of all its operators.
  double compute_seconds = 0;
  double communication_seconds =
      0;  // what moving operands to where they are wanted takes, and what communicating within the operator does
  int64_t received_bytes = 0;
  int64_t result_bytes = 0;
  std::vector<ir::NodeId> nodes;

  double seconds() const { return compute_seconds + communication_seconds; }
};

// The rows are in the order of the graph.
std::vector<PlanRow> folded_rows(const PlannedStep& planned);

// Names of one compiler::layer_pattern(), as one: equal numbers stay, others are "0-11", "0,5" or, of many, "*".
std::string joined_name(const std::vector<std::string>& names);

}  // namespace tessera::tools
