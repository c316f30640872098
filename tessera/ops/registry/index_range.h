// IndexRange: which operand of an operator holds indices, and which indices are good. Kernels skip a bad index as their
// operator's text says; whoever runs a graph looks for bad indices first and stops.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// nullopt where the operator reads no index, or where every index is good (one_hot without "valid").
std::optional<IndexRange> index_range(const std::string& op, const Attributes& attributes,
                                      std::span<const Type> inputs);

// The attribute "valid" of operators with indices, [begin, end), which may be absent.
AttributeDef valid_attribute(const std::string& if_absent);
// Throws InvalidArgument unless "valid" is absent or two numbers.
void require_valid(const Attributes& attributes);
// Sets "valid" for the part of a table that begins at row `offset` of `size`. What is whole needs none.
void set_valid_rows(Attributes& attributes, int64_t offset, int64_t held, int64_t size);

}  // namespace tessera::ops
