// MomentOptimizer: Adam and its kin, which keep two moments of each parameter's gradients; both decay, by a beta each.
#pragma once

#include <string>
#include <vector>

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

class MomentOptimizer : public BaseOptimizer {
 protected:
  // Throws InvalidArgument unless both betas are in (0,1) and eps > 0.
  template <typename Options>
  MomentOptimizer(const std::string& name, const Options& options)
      : BaseOptimizer(name, {options.learning_rate, options.weight_decay, options.loss_scale, options.groups}),
        beta1_(options.beta1),
        beta2_(options.beta2),
        eps_(options.eps) {
    check_options();
  }

  // beta1_power and, unless only the first moment starts too small, beta2_power: shared states.
  std::vector<Parameter> powers(DType scalar, bool both = true) const;
  // What they are at this step, as scalars; the states take it.
  std::vector<ir::Value> advance(ir::Graph& graph, const std::vector<Parameter>& powers) const;
  // Adds the operator of the parameter, its moments (the slots), its gradient, the rate and the scalars, with the
  // options and `more` as attributes; its results are the new values of the parameter and the moments.
  void add_operator(const std::string& op, const Update& update, Attributes more = {}) const;

  double beta1_;
  double beta2_;
  double eps_;

 private:
  void check_options() const;
};

}  // namespace tessera::nn
