#include "tessera/nn/optimizers/ftrl.h"

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

// The decay that FTRL has for all parameters: a group that all names match has no exemptions.
OptimizerSettings settings_of(const FTRLOptions& options) {
  OptimizerSettings settings{options.learning_rate, options.weight_decay, options.loss_scale, options.groups};
  if (settings.groups.empty() && options.weight_decay != 0) {
    settings.groups.push_back({.matches = [](const std::string&) { return true; }});
  }
  return settings;
}

}  // namespace

FTRL::FTRL(const FTRLOptions& options)
    : BaseOptimizer("FTRL", settings_of(options)),
      initial_accum_(options.initial_accum),
      lr_power_(options.lr_power),
      l1_(options.l1),
      l2_(options.l2) {
  if (!(initial_accum_ >= 0 && l1_ >= 0 && l2_ >= 0)) {
    throw InvalidArgument("FTRL: initial_accum, l1 and l2 must not be negative, got {}, {} and {}", initial_accum_, l1_,
                          l2_);
  }
  if (!(lr_power_ <= 0)) throw InvalidArgument("FTRL: lr_power must not be positive, got {}", lr_power_);
}

void FTRL::add_update(const Update& update) const {
  ir::Graph& graph = update.value.graph();
  const Parameter moments_state = slot_of(update.parameter, "moments");
  const Parameter linear_state = slot_of(update.parameter, "linear");
  const DType dtype = moments_state.type.dtype;
  const ir::Value p = ops::cast(update.value, dtype);
  const ir::Value lr = ops::cast(update.learning_rate, dtype);
  const ir::Value g = decayed_gradient(update);
  const ir::Value moments = moments_state.in(graph);
  const ir::Value next = moments + ops::square(g);
  const auto power = [&](ir::Value x) { return lr_power_ == -0.5 ? ops::sqrt(x) : ops::pow(x, -lr_power_); };
  const ir::Value linear = linear_state.in(graph) + g - (power(next) - power(moments)) / lr * p;
  const ir::Value shrunk = (ops::sign(linear) * l1_ - linear) / (power(next) / lr + 2 * l2_);
  const ir::Value updated = ops::select(ops::abs(linear) > l1_, shrunk, 0.0);
  update.parameter.assign(ops::cast(updated, update.value.dtype()));
  moments_state.assign(next);
  linear_state.assign(linear);
}

}  // namespace tessera::nn
