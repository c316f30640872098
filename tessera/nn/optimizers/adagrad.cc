#include "tessera/nn/optimizers/adagrad.h"

#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

Adagrad::Adagrad(const AdagradOptions& options)
    : BaseOptimizer("Adagrad", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      accum_(options.accum),
      update_slots_(options.update_slots) {
  require_not_negative("Adagrad", "accum", accum_);
}

void Adagrad::add_update(const Update& update) const {
  const Parameter states[] = {slot_of(update.parameter, "accum")};
  apply_operator(
      "adagrad", update, states, {},
      {{"update_slots", update_slots_}, {"weight_decay", update.weight_decay}, {"loss_scale", update.loss_scale}});
}

// An accum of 0 makes NaN of a row without gradient.
RowUpdates Adagrad::kind_of_row_updates(const Parameter&, double weight_decay, bool /*is_rate_fixed*/) const {
  return accum_ > 0 && weight_decay == 0 ? RowUpdates::kExact : RowUpdates::kNever;
}

Adadelta::Adadelta(const AdadeltaOptions& options)
    : BaseOptimizer("Adadelta", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      rho_(options.rho),
      epsilon_(options.epsilon) {
  require_in("Adadelta", "rho", rho_, 0, 1);
  require_not_negative("Adadelta", "epsilon", epsilon_);
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
