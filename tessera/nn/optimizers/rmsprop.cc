#include "tessera/nn/optimizers/rmsprop.h"

#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

RMSProp::RMSProp(const RMSPropOptions& options)
    : BaseOptimizer("RMSProp", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      decay_(options.decay),
      momentum_(options.momentum),
      epsilon_(options.epsilon),
      centered_(options.centered) {
  require_not_negative("RMSProp", "decay", decay_);
  require_not_negative("RMSProp", "momentum", momentum_);
  require_positive("RMSProp", "epsilon", epsilon_);
  if (!options.is_strict) return;
  require_in("RMSProp", "decay", decay_, 0, 1);
  require_in("RMSProp", "momentum", momentum_, 0, 1);
}

std::vector<std::string> RMSProp::slots() const {
  if (centered_) return {"mean_grad", "mean_square", "moment"};
  return {"mean_square", "moment"};
}

void RMSProp::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter square_state = slot_of(update.parameter, "mean_square");
  const Parameter moment_state = slot_of(update.parameter, "moment");
  const DType dtype = square_state.type.dtype;
  const ir::Value g = decayed_gradient(update);
  const ir::Value mean_square = square_state.in(graph)*decay_ + ops::square(g) * (1 - decay_);
  ir::Value variance = mean_square;
  if (centered_) {
    const Parameter mean_state = slot_of(update.parameter, "mean_grad");
    const ir::Value mean = mean_state.in(graph)*decay_ + g * (1 - decay_);
    variance = mean_square - ops::square(mean);
    mean_state.assign(mean);
  }
  const ir::Value step = ops::cast(update.learning_rate, dtype) * g / ops::sqrt(variance + epsilon_);
  const ir::Value moment = moment_state.in(graph)*momentum_ + step;
  update.parameter.assign(ops::cast(ops::cast(update.value, dtype) - moment, update.value.dtype()));
  square_state.assign(mean_square);
  moment_state.assign(moment);
}

}  // namespace tessera::nn
