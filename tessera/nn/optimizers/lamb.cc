#include "tessera/nn/optimizers/lamb.h"

#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

ir::Value norm(ir::Value x) { return ops::sqrt(ops::reduce_sum(ops::square(x), {}, /*keep_dims=*/false)); }

}  // namespace

// What the moments are divided by at this step, because they start from 0.
std::vector<ir::Value> Lamb::begin_step(ir::Graph& graph, DType scalar) const {
  const ir::Value step = ops::cast(ops::reshape(global_step(graph), {}), scalar) + 1.0;
  return {1.0 - ops::pow(beta1_, step), 1.0 - ops::pow(beta2_, step)};
}

void Lamb::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter m_state = slot_of(update.parameter, "lamb_m");
  const Parameter v_state = slot_of(update.parameter, "lamb_v");
  const DType dtype = m_state.type.dtype;
  const auto scalar = [&](ir::Value value) { return ops::cast(value, dtype); };
  const ir::Value p = ops::cast(update.value, dtype);
  const ir::Value g = ops::cast(update.gradient, dtype) / update.loss_scale;
  const ir::Value m = m_state.in(graph)*beta1_ + g * (1 - beta1_);
  const ir::Value v = v_state.in(graph)*beta2_ + ops::square(g) * (1 - beta2_);
  const ir::Value adam = m / scalar(update.shared[0]) / (ops::sqrt(v / scalar(update.shared[1])) + eps_);
  const ir::Value r = adam + p * update.weight_decay;
  const ir::Value length = norm(p), step = norm(r);
  const ir::Value ratio = ops::select(ops::logical_and(length > 0.0, step > 0.0), length / step, 1.0);
  update.parameter.assign(ops::cast(p - r * (scalar(update.learning_rate) * ratio), update.value.dtype()));
  m_state.assign(m);
  v_state.assign(v);
}

}  // namespace tessera::nn
