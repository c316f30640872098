// The programs of fused nodes: what the passes that write them share. Their text form is that of fused_elementwise.
#pragma once

#include <optional>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

// The operator of a program that computes what the node does; nullopt where there is none.
std::optional<std::string> program_op(const ir::Graph& graph, const ir::Node& node);

inline bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// The number that a scalar of f32 or a half type is everywhere, as it stands in a program; nullopt for any other value.
std::optional<std::string> literal_of(const ir::Graph& graph, ir::ValueId v);

}  // namespace tessera::compiler
