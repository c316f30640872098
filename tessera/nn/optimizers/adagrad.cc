#include "tessera/nn/optimizers/adagrad.h"

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

Adagrad::Adagrad(const AdagradOptions& options)
    : BaseOptimizer("Adagrad", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      accum_(options.accum),
      update_slots_(options.update_slots) {
  if (!(accum_ >= 0)) throw InvalidArgument("Adagrad: accum must not be negative, got {}", accum_);
}

void Adagrad::add_update(const Update& update) const {
  const Parameter state = slot_of(update.parameter, "accum");
  const DType dtype = state.type.dtype;
  const ir::Value p = ops::cast(update.value, dtype);
  const ir::Value g = decayed_gradient(update);
  ir::Value accum = state.in(update.value.graph());
  if (update_slots_) accum = accum + ops::square(g);
  const ir::Value step = ops::cast(update.learning_rate, dtype) * g / ops::sqrt(accum);
  update.parameter.assign(ops::cast(p - step, update.value.dtype()));
  state.assign(accum);
}

}  // namespace tessera::nn
