#include "tessera/nn/optimizers/moment_optimizer.h"

#include <utility>

#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

void MomentOptimizer::check_options() const {
  require_inside(name(), "beta1", beta1_, 0, 1);
  require_inside(name(), "beta2", beta2_, 0, 1);
  require_positive(name(), "eps", eps_);
}

std::vector<Parameter> MomentOptimizer::powers(DType scalar, bool both) const {
  std::vector<Parameter> states{state("beta1_power", {scalar, {1}}, 1)};
  if (both) states.push_back(state("beta2_power", {scalar, {1}}, 1));
  return states;
}

std::vector<ir::Value> MomentOptimizer::advance(ir::Graph& graph, const std::vector<Parameter>& powers) const {
  std::vector<ir::Value> scalars;
  for (size_t i = 0; i < powers.size(); ++i) {
    const ir::Value next = ops::mul(powers[i].in(graph), i == 0 ? beta1_ : beta2_);
    powers[i].assign(next);
    scalars.push_back(ops::reshape(next, {}));
  }
  return scalars;
}

void MomentOptimizer::add_operator(const std::string& op, const Update& update, Attributes more) const {
  const Parameter states[] = {slot_of(update.parameter, slots()[0]), slot_of(update.parameter, slots()[1])};
  more.set("beta1", beta1_);
  more.set("beta2", beta2_);
  more.set("eps", eps_);
  more.set("weight_decay", update.weight_decay);
  more.set("loss_scale", update.loss_scale);
  apply_operator(op, update, states, update.shared, more);
}

}  // namespace tessera::nn
