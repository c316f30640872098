#include "tessera/nn/optimizers/sgd.h"

#include "tessera/base/error.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

SGD::SGD(const SGDOptions& options)
    : BaseOptimizer("SGD", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      momentum_(options.momentum),
      dampening_(options.dampening),
      nesterov_(options.nesterov) {
  require_not_negative("SGD", "momentum", momentum_);
  require_not_negative("SGD", "dampening", dampening_);
  if (options.is_strict) require_in("SGD", "momentum", momentum_, 0, 1);
  if (options.is_strict && dampening_ != 0 && momentum_ == 0) {
    throw InvalidArgument("SGD: dampening = {} has no effect without momentum: set that, too", dampening_);
  }
  if (nesterov_ && (momentum_ == 0 || dampening_ != 0)) {
    throw InvalidArgument("SGD: nesterov needs a momentum above 0 and no dampening, got {} and {}", momentum_,
                          dampening_);
  }
}

std::vector<Parameter> SGD::shared_states(DType scalar) const { return {state("momentum", {scalar, {}}, momentum_)}; }

std::vector<ir::Value> SGD::begin_step(ir::Graph& graph, DType scalar) const {
  const ir::Value is_first = ops::reshape(ops::equal(global_step(graph), 0), {});
  return {shared_states(scalar)[0].in(graph), ops::cast(is_first, scalar)};
}

void SGD::add_update(const Update& update) const {
  const Parameter states[] = {slot_of(update.parameter, "accum")};
  // The momentum is a state, which a checkpoint may have set.
  const ir::Value has_momentum =
      update.rows ? ops::cast(ops::not_equal(update.shared[0], 0), DType::kF32) : ir::Value();
  apply_operator("sgd", update, states, update.shared,
                 {{"dampening", dampening_},
                  {"weight_decay", update.weight_decay},
                  {"loss_scale", update.loss_scale},
                  {"nesterov", nesterov_}},
                 has_momentum, /*keeps_states=*/true);
}

RowUpdates SGD::kind_of_row_updates(const Parameter&, double weight_decay, bool /*is_rate_fixed*/) const {
  return momentum_ == 0 && weight_decay == 0 ? RowUpdates::kExact : RowUpdates::kNever;
}

}  // namespace tessera::nn
