#include "tessera/nn/optimizers/adam.h"

#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

void AdaMax::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter mean_state = slot_of(update.parameter, "moment1");
  const Parameter largest_state = slot_of(update.parameter, "moment2");
  const DType dtype = mean_state.type.dtype;
  const ir::Value g = decayed_gradient(update);
  const ir::Value mean = mean_state.in(graph)*beta1_ + g * (1 - beta1_);
  const ir::Value largest = ops::maximum(largest_state.in(graph)*beta2_, ops::abs(g));
  const ir::Value power = scalar_for(update.parameter, update.shared[0]);
  const ir::Value rate = ops::cast(update.learning_rate / (1 - power), dtype);
  const ir::Value p = ops::cast(update.value, dtype) - rate * mean / (largest + eps_);
  update.parameter.assign(ops::cast(p, update.value.dtype()));
  mean_state.assign(mean);
  largest_state.assign(largest);
}

void AMSGrad::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter mean_state = slot_of(update.parameter, "moment1");
  const Parameter square_state = slot_of(update.parameter, "moment2");
  const Parameter largest_state = slot_of(update.parameter, "vhat");
  const DType dtype = mean_state.type.dtype;
  const ir::Value g = decayed_gradient(update);
  const ir::Value mean = mean_state.in(graph)*beta1_ + g * (1 - beta1_);
  const ir::Value square = square_state.in(graph)*beta2_ + g * g * (1 - beta2_);
  const ir::Value largest = ops::maximum(largest_state.in(graph), square);
  const ir::Value power1 = scalar_for(update.parameter, update.shared[0]);
  const ir::Value power2 = scalar_for(update.parameter, update.shared[1]);
  const ir::Value rate = ops::cast(update.learning_rate * ops::sqrt(1 - power2) / (1 - power1), dtype);
  const ir::Value p = ops::cast(update.value, dtype) - rate * mean / (ops::sqrt(largest) + eps_);
  update.parameter.assign(ops::cast(p, update.value.dtype()));
  mean_state.assign(mean);
  square_state.assign(square);
  largest_state.assign(largest);
}

}  // namespace tessera::nn
