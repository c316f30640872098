// LogicalPlace: which value of the logical graph a value of a rank's graph is, as that rank holds it.
#pragma once

#include <cstdint>

namespace tessera::ir {

// A place in the logical graph: a result of a node, or an operand as the node reads it, where that is whole and was made
// as the terms of a sum. Its layout is the plan's. Passes over a rank's graph keep it as long as the value is there.
struct LogicalPlace {
  int32_t node = -1;        // of the logical graph; -1: none, as of what moves between operators and within one
  int32_t index = 0;        // which result, or which operand
  bool is_operand = false;  // else a result

  bool is_known() const { return node >= 0; }
};

}  // namespace tessera::ir
