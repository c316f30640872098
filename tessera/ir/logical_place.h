// LogicalPlace: which value of the logical graph a value of a rank's graph is, as that rank holds it.
#pragma once

#include <cstdint>

namespace tessera::ir {

// A place in the logical graph, by which the plan says how the value lies. What was made as the terms of a sum is
// another value of a rank's graph once it is whole: it is the operand, or the output of the graph, that it became whole
// for. Passes over a rank's graph keep the place as long as the value is there.
struct LogicalPlace {
  enum class Kind : int8_t {
    kNone,     // it only moves between operators, or within one
    kResult,   // `index` of the node
    kOperand,  // `index` of the node, as the node reads it
    kOutput    // `index` of the graph
  };

  Kind kind = Kind::kNone;
  int32_t node = -1;  // of the logical graph
  int32_t index = 0;

  bool is_known() const { return kind != Kind::kNone; }
};

}  // namespace tessera::ir
