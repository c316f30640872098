// What localize functions of operators that reach over to other ranks share. Internal to ops/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/rules/exchange.h"

namespace tessera::ops {

// The slices that one rank has of the node's operands and results.
struct RankSlices {
  std::vector<Box> inputs;
  std::vector<Box> outputs;
};
RankSlices slices_of(const LocalizeContext& context, int rank);

// The box of operand `input` that this rank needs, put together from what the ranks along the axes of `factors` hold;
// `needed` says it for any rank. It may reach beyond what this rank has along those factors only, and not beyond the
// tensor.
Value fetch(const LocalizeContext& context, size_t input, const std::vector<std::string>& factors,
            const std::function<Box(const RankSlices&)>& needed);

// The reduction of a local value over the ranks that share the splits of all factors but these.
Value reduce_over(const LocalizeContext& context, const std::vector<std::string>& factors, Value value,
                  const std::string& reduction);
// The part along `dim` that this rank has of the sum of their values, when the factor splits that dim.
Value scatter_over(const LocalizeContext& context, const std::string& factor, Value value, int dim);

// The pieces along `dim` that the ranks of the factor's axes hold, one after the other in the order of its parts;
// sizes: of all of them.
Value gather_over(const LocalizeContext& context, const std::string& factor, Value value, int dim, const Ints& sizes);
// The sizes of the parts of a dim of `size` elements that the factor splits, in order, and which one this rank has.
Ints part_sizes(const LocalizeContext& context, const std::string& factor, int64_t size);
int64_t part_index(const LocalizeContext& context, const std::string& factor);

// Helpers for writing local nodes.
// Indices as a rank sees them that holds the elements from `offset` on along the indexed dim: those of other ranks
// become out of range.
Value shift_indices(Value indices, int64_t offset);
// Whether a node is what shift_indices() adds, or looks like it.
bool shifts_indices(const ir::Graph& graph, const ir::Node& node);
Value slice_along(Value x, int dim, int64_t begin, int64_t end);
Value zeros(ir::Graph& graph, const Type& type);
// Returns x with zeros around it along `dim`.
Value pad_along(Value x, int dim, int64_t before, int64_t after);

}  // namespace tessera::ops
