#include "tessera/nn/optimizers/ftrl.h"

#include "tessera/base/error.h"
#include "tessera/nn/number_checks.h"
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
      l2_(options.l2),
      is_lazy_(options.is_lazy) {
  require_not_negative("FTRL", "initial_accum", initial_accum_);
  require_not_negative("FTRL", "l1", l1_);
  require_not_negative("FTRL", "l2", l2_);
  require_finite("FTRL", "lr_power", lr_power_);
  if (lr_power_ > 0) throw InvalidArgument("FTRL: lr_power must not be positive, got {}", lr_power_);
}

void FTRL::add_update(const Update& update) const {
  const Parameter states[] = {slot_of(update.parameter, "moments"), slot_of(update.parameter, "linear")};
  // The first step makes of every row what follows from its states and the rate, whatever it was.
  ir::Value is_first;
  if (update.rows && !is_lazy(update.parameter)) {
    is_first = ops::cast(ops::reshape(ops::equal(global_step(update.value.graph()), 0), {}), DType::kF32);
  }
  apply_operator("ftrl", update, states, {},
                 {{"l1", l1_},
                  {"l2", l2_},
                  {"lr_power", lr_power_},
                  {"weight_decay", update.weight_decay},
                  {"loss_scale", update.loss_scale}},
                 is_first);
}

// Where states and rate stay, so does what follows from them.
RowUpdates FTRL::kind_of_row_updates(const Parameter& parameter, double weight_decay, bool is_rate_fixed) const {
  if (is_lazy(parameter)) return RowUpdates::kAlways;
  return is_rate_fixed && weight_decay == 0 ? RowUpdates::kExact : RowUpdates::kNever;
}

}  // namespace tessera::nn
