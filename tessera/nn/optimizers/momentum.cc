#include "tessera/nn/optimizers/momentum.h"

#include "tessera/base/error.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::nn {

Momentum::Momentum(const MomentumOptions& options)
    : BaseOptimizer("Momentum", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      momentum_(options.momentum),
      use_nesterov_(options.use_nesterov) {
  require_not_negative("Momentum", "momentum", momentum_);
  if (!options.is_strict) return;
  require_in("Momentum", "momentum", momentum_, 0, 1);
  if (use_nesterov_ && momentum_ == 0) {
    throw InvalidArgument("Momentum: use_nesterov has no effect without momentum, which is 0: set that, too");
  }
}

std::vector<Parameter> Momentum::shared_states(DType scalar) const {
  return {state("momentum", {scalar, {}}, momentum_)};
}

std::vector<ir::Value> Momentum::begin_step(ir::Graph& graph, DType scalar) const {
  return {shared_states(scalar)[0].in(graph)};
}

void Momentum::add_update(const Update& update) const {
  const Parameter moment = slot_of(update.parameter, "moments");
  const auto results = ops::apply(
      "momentum",
      {update.value, moment.in(update.value.graph()), update.gradient, update.learning_rate,
       scalar_for(update.parameter, update.shared[0])},
      {{"weight_decay", update.weight_decay}, {"loss_scale", update.loss_scale}, {"nesterov", use_nesterov_}});
  update.parameter.assign(results[0]);
  moment.assign(results[1]);
}

}  // namespace tessera::nn
