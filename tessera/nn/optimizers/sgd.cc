#include "tessera/nn/optimizers/sgd.h"

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

SGD::SGD(const SGDOptions& options)
    : BaseOptimizer("SGD", {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
      momentum_(options.momentum),
      dampening_(options.dampening),
      nesterov_(options.nesterov) {
  if (!(momentum_ >= 0 && dampening_ >= 0)) {
    throw InvalidArgument("SGD: momentum and dampening must not be negative, got {} and {}", momentum_, dampening_);
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
  const Parameter accumulated = slot_of(update.parameter, "accum");
  const auto results =
      ops::apply("sgd",
                 {update.value, accumulated.in(update.value.graph()), update.gradient, update.learning_rate,
                  scalar_for(update.parameter, update.shared[0]), scalar_for(update.parameter, update.shared[1])},
                 {{"dampening", dampening_},
                  {"weight_decay", update.weight_decay},
                  {"loss_scale", update.loss_scale},
                  {"nesterov", nesterov_}});
  update.parameter.assign(results[0]);
  accumulated.assign(results[1]);
}

}  // namespace tessera::nn
