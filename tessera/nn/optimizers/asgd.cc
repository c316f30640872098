#include "tessera/nn/optimizers/asgd.h"

#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

ASGD::ASGD(const ASGDOptions& options)
    : BaseOptimizer("ASGD", {options.learning_rate, options.weight_decay, 1.0, options.groups}),
      lambd_(options.lambd),
      alpha_(options.alpha),
      t0_(options.t0) {
  require_finite("ASGD", "lambd", lambd_);
  require_finite("ASGD", "alpha", alpha_);
  require_finite("ASGD", "t0", t0_);
}

std::vector<ir::Value> ASGD::begin_step(ir::Graph& graph, DType scalar) const {
  const ir::Value before = ops::reshape(global_step(graph), {});
  return {ops::equal(before, 0), ops::cast(before + 1, scalar)};
}

void ASGD::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter mu_state = number_of(update.parameter, "mu_");
  const Parameter eta_state = number_of(update.parameter, "eta_");
  const Parameter mean_state = slot_of(update.parameter, "ax_");
  const DType dtype = mean_state.type.dtype;
  const ir::Value is_first = update.shared[0];
  const ir::Value step = scalar_for(update.parameter, update.shared[1]);
  const ir::Value rate = update.learning_rate;
  const ir::Value eta = ops::select(is_first, rate, eta_state.in(graph));
  const ir::Value mu = mu_state.in(graph);
  const ir::Value g = decayed_gradient(update);
  const ir::Value shrink = ops::cast(1 - eta * lambd_, dtype);
  const ir::Value p = ops::cast(update.value, dtype) * shrink - ops::cast(eta, dtype) * g;
  const ir::Value mean = mean_state.in(graph);
  update.parameter.assign(ops::cast(p, update.value.dtype()));
  mean_state.assign(ops::select(ops::equal(mu, 1), p, mean + (p - mean) * ops::cast(mu, dtype)));
  eta_state.assign(rate / ops::pow(1 + rate * lambd_ * step, alpha_));
  mu_state.assign(1 / ops::maximum(step - t0_, 1));
}

}  // namespace tessera::nn
