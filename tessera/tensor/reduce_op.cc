#include "tessera/tensor/reduce_op.h"

#include "tessera/base/error.h"

namespace tessera {

const char* to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kProd: return "prod";
  }
  return "?";
}

ReduceOp parse_reduce_op(std::string_view text) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd}) {
    if (text == to_string(op)) return op;
  }
  throw InvalidArgument("unknown reduction \"{}\"; the known ones are sum, max, min, prod", text);
}

}  // namespace tessera
