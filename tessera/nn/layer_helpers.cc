#include "tessera/nn/layer_helpers.h"

#include "tessera/base/error.h"
#include "tessera/ops/functions/reduce_functions.h"

namespace tessera::nn {

void check_images(const std::string& op, ir::Value x) {
  if (x.ndim() != 4) {
    throw InvalidArgument("{} \"{}\": takes images [n,c,h,w], got {}", op, x.graph().origin().source, x.type());
  }
}

DType at_least_f32(DType dtype) { return promote(dtype, DType::kF32); }

ir::Value reduce_loss(ir::Value x, const std::string& reduction) {
  if (reduction == "none") return x;
  return reduction == "mean" ? ops::reduce_mean(x) : ops::reduce_sum(x);
}

void check_bias_init(const std::string& who, bool has_bias, bool has_init) {
  if (has_bias || !has_init) return;
  throw InvalidArgument("{}: bias_init has no effect without a bias: set has_bias, or leave bias_init out", who);
}

}  // namespace tessera::nn
