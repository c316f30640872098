#include "tessera/nn/optimizers/adam.h"

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

void check_options(const char* who, double beta1, double beta2, double eps) {
  if (!(beta1 > 0 && beta1 < 1 && beta2 > 0 && beta2 < 1)) {
    throw InvalidArgument("{}: beta1 and beta2 must be in (0,1), got {} and {}", who, beta1, beta2);
  }
  if (!(eps > 0)) throw InvalidArgument("{}: eps must be positive, got {}", who, eps);
}

// The powers of the betas at this step, as scalars; the states take them.
std::vector<ir::Value> advance_powers(ir::Graph& graph, const std::vector<Parameter>& powers,
                                      const std::vector<double>& betas) {
  std::vector<ir::Value> scalars;
  for (size_t i = 0; i < powers.size(); ++i) {
    const ir::Value next = ops::mul(powers[i].in(graph), betas[i]);
    powers[i].assign(next);
    scalars.push_back(ops::reshape(next, {}));
  }
  return scalars;
}

}  // namespace

Adam::Adam(const AdamOptions& options)
    : BaseOptimizer("Adam", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps),
      use_nesterov_(options.use_nesterov) {
  check_options("Adam", beta1_, beta2_, eps_);
}

std::vector<Parameter> Adam::shared_states(DType scalar) const {
  return {state("beta1_power", {scalar, {1}}, 1), state("beta2_power", {scalar, {1}}, 1)};
}

std::vector<ir::Value> Adam::begin_step(ir::Graph& graph, DType scalar) const {
  return advance_powers(graph, shared_states(scalar), {beta1_, beta2_});
}

void Adam::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter m = slot_of(update.parameter, "moment1");
  const Parameter v = slot_of(update.parameter, "moment2");
  const auto results =
      ops::apply("adam",
                 {update.value, m.in(graph), v.in(graph), update.gradient, update.learning_rate,
                  scalar_for(update.parameter, update.shared[0]), scalar_for(update.parameter, update.shared[1])},
                 {{"beta1", beta1_},
                  {"beta2", beta2_},
                  {"eps", eps_},
                  {"weight_decay", update.weight_decay},
                  {"loss_scale", update.loss_scale},
                  {"nesterov", use_nesterov_}});
  update.parameter.assign(results[0]);
  m.assign(results[1]);
  v.assign(results[2]);
}

AdaMax::AdaMax(const AdaMaxOptions& options)
    : BaseOptimizer("AdaMax", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps) {
  check_options("AdaMax", beta1_, beta2_, eps_);
}

std::vector<Parameter> AdaMax::shared_states(DType scalar) const { return {state("beta1_power", {scalar, {1}}, 1)}; }

std::vector<ir::Value> AdaMax::begin_step(ir::Graph& graph, DType scalar) const {
  return advance_powers(graph, shared_states(scalar), {beta1_});
}

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

AdamW::AdamW(const AdamWOptions& options)
    : BaseOptimizer("AdamW", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps) {
  check_options("AdamW", beta1_, beta2_, eps_);
}

std::vector<Parameter> AdamW::shared_states(DType scalar) const {
  return {state("beta1_power", {scalar, {1}}, 1), state("beta2_power", {scalar, {1}}, 1)};
}

std::vector<ir::Value> AdamW::begin_step(ir::Graph& graph, DType scalar) const {
  return advance_powers(graph, shared_states(scalar), {beta1_, beta2_});
}

void AdamW::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter m = slot_of(update.parameter, "moment1");
  const Parameter v = slot_of(update.parameter, "moment2");
  const auto results =
      ops::apply("adamw",
                 {update.value, m.in(graph), v.in(graph), update.gradient, update.learning_rate,
                  scalar_for(update.parameter, update.shared[0]), scalar_for(update.parameter, update.shared[1])},
                 {{"beta1", beta1_},
                  {"beta2", beta2_},
                  {"eps", eps_},
                  {"weight_decay", update.weight_decay},
                  {"loss_scale", update.loss_scale}});
  update.parameter.assign(results[0]);
  m.assign(results[1]);
  v.assign(results[2]);
}

AdamWeightDecay::AdamWeightDecay(const AdamWeightDecayOptions& options)
    : BaseOptimizer("AdamWeightDecay",
                    {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      beta1_(options.beta1),
      beta2_(options.beta2),
      eps_(options.eps) {
  check_options("AdamWeightDecay", beta1_, beta2_, eps_);
}

void AdamWeightDecay::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter m = slot_of(update.parameter, "adam_m");
  const Parameter v = slot_of(update.parameter, "adam_v");
  const auto results =
      ops::apply("adam_weight_decay", {update.value, m.in(graph), v.in(graph), update.gradient, update.learning_rate},
                 {{"beta1", beta1_},
                  {"beta2", beta2_},
                  {"eps", eps_},
                  {"weight_decay", update.weight_decay},
                  {"loss_scale", update.loss_scale}});
  update.parameter.assign(results[0]);
  m.assign(results[1]);
  v.assign(results[2]);
}

}  // namespace tessera::nn
