// RowGradient: the gradient of a table of which rows were looked up, as these rows' gradients: what is 0 everywhere
// else need not be made. An optimizer that leaves rows without gradient as they are updates these rows alone.
#pragma once

#include <optional>

#include "tessera/ir/graph.h"

namespace tessera::nn {

struct RowGradient {
  ir::Value ids;   // i32 or i64 [n]: which row of the parameter; numbers repeat where rows were looked up repeatedly
  ir::Value rows;  // [n, ...]: the gradient of each, of the parameter's dims behind the first
};

// How many rows were looked up, where a gradient is made of lookups (gather along dim 0) alone: of one or a sum of
// several, also where it was cast, or multiplied or divided by a number, since. nullopt for any other.
std::optional<int64_t> num_looked_up(const ir::Value& gradient);
// Whether such a gradient is of rows that data inputs and constants alone name, nothing that the network computes of
// its parameters and states.
bool looks_up_data_only(const ir::Value& gradient);
// Returns such a gradient by rows.
RowGradient row_gradient_of(const ir::Value& gradient);

// How often each row was looked up, f32 [rows]. The gradient may have been summed over ranks, too. nullopt where it is
// not made of lookups.
std::optional<ir::Value> lookups_of(const ir::Value& gradient);

}  // namespace tessera::nn
