#include "tessera/nn/optimizers/rprop.h"

#include "tessera/base/error.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

Rprop::Rprop(const RpropOptions& options)
    : BaseOptimizer("Rprop", {options.learning_rate, options.weight_decay, 1.0, options.groups}),
      smaller_(options.smaller),
      larger_(options.larger),
      least_step_(options.least_step),
      longest_step_(options.longest_step) {
  require_inside("Rprop", "smaller", smaller_, 0, 1);
  require_finite("Rprop", "larger", larger_);
  if (larger_ <= 1) throw InvalidArgument("Rprop: larger must be above 1, got {}", larger_);
  require_not_negative("Rprop", "least_step", least_step_);
  if (!(least_step_ <= longest_step_)) {
    throw InvalidArgument("Rprop: least_step must be at most longest_step, got {} and {}", least_step_, longest_step_);
  }
}

std::vector<ir::Value> Rprop::begin_step(ir::Graph& graph, DType) const {
  return {ops::equal(ops::reshape(global_step(graph), {}), 0)};
}

void Rprop::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter last_state = slot_of(update.parameter, "prev");
  const Parameter length_state = slot_of(update.parameter, "step_size");
  const DType dtype = last_state.type.dtype;
  const ir::Value is_first = update.shared[0];
  const ir::Value g = decayed_gradient(update);
  const ir::Value change = ops::sign(g * last_state.in(graph));
  const ir::Value factor = ops::select(change > 0, larger_, ops::select(change < 0, smaller_, ops::ones_like(g)));
  const ir::Value before = ops::select(is_first, ops::cast(update.learning_rate, dtype), length_state.in(graph));
  const ir::Value length = ops::minimum(ops::maximum(before * factor, least_step_), longest_step_);
  const ir::Value kept = ops::select(change < 0, 0.0, g);
  const ir::Value p = ops::cast(update.value, dtype) - ops::sign(kept) * length;
  update.parameter.assign(ops::cast(p, update.value.dtype()));
  last_state.assign(kept);
  length_state.assign(length);
}

}  // namespace tessera::nn
