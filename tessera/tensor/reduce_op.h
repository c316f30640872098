// ReduceOp: how ranks make one value of theirs.
#pragma once

#include <string_view>

#include "tessera/base/error.h"

namespace tessera {

enum class ReduceOp { kSum, kMax, kMin, kProd };

// "sum"
inline const char* to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kProd: return "prod";
  }
  return "?";
}

// Throws InvalidArgument naming the text and the four names.
inline ReduceOp parse_reduce_op(std::string_view text) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
    if (text == to_string(op)) return op;
  }
  throw InvalidArgument("unknown reduction \"{}\"; the known ones are sum, max, min, prod", text);
}

}  // namespace tessera
