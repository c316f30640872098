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

Adadelta::Adadelta(const AdadeltaOptions& options)
    : BaseOptimizer("Adadelta", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      rho_(options.rho),
      epsilon_(options.epsilon) {
  if (!(rho_ >= 0 && rho_ <= 1)) throw InvalidArgument("Adadelta: rho must be in [0,1], got {}", rho_);
  if (!(epsilon_ >= 0)) throw InvalidArgument("Adadelta: epsilon must not be negative, got {}", epsilon_);
}

void Adadelta::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter squares_state = slot_of(update.parameter, "accum");
  const Parameter steps_state = slot_of(update.parameter, "accum_update");
  const DType dtype = squares_state.type.dtype;
  const ir::Value g = decayed_gradient(update);
  const ir::Value squares = squares_state.in(graph)*rho_ + ops::square(g) * (1 - rho_);
  const ir::Value steps = steps_state.in(graph);
  const ir::Value step = ops::sqrt(steps + epsilon_) * ops::rsqrt(squares + epsilon_) * g;
  const ir::Value p = ops::cast(update.value, dtype) - ops::cast(update.learning_rate, dtype) * step;
  update.parameter.assign(ops::cast(p, update.value.dtype()));
  squares_state.assign(squares);
  steps_state.assign(steps * rho_ + ops::square(step) * (1 - rho_));
}

}  // namespace tessera::nn
