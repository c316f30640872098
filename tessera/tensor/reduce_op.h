// ReduceOp: how ranks make one value of theirs.
#pragma once

#include <string_view>

namespace tessera {

enum class ReduceOp { kSum, kMax, kMin, kProd };
const char* to_string(ReduceOp op);  // "sum"
// Throws InvalidArgument naming the text and the four names.
ReduceOp parse_reduce_op(std::string_view text);

}  // namespace tessera
