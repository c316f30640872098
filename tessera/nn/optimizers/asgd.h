// ASGD: steps down the gradient and the mean of the values that they reach: Polyak and Juditsky, "Acceleration of
// stochastic approximation by averaging", SIAM 1992.
//   p = p * (1 - lambd * eta) - eta * g;  ax = ax + (p - ax) * mu
//   eta = lr / (1 + lambd * lr * t)^alpha;  mu = 1 / max(1, t - t0)
// eta is lr and mu is 1 at the first step. ax is what one evaluates with; training goes on from p.
#pragma once

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct ASGDOptions {
  LearningRate learning_rate = 0.1;
  double lambd = 1e-4;
  double alpha = 0.75;
  double t0 = 1e6;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups = {};
};

// States: mu_<parameter> and eta_<parameter>, a number each, and ax_.<parameter>.
class ASGD : public BaseOptimizer {
 public:
  // Throws InvalidArgument for settings that are not finite.
  explicit ASGD(const ASGDOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"ax_"}; }
  std::vector<NumberSlot> number_slots() const override { return {{"mu_", 1}, {"eta_", 0}}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override;
  void add_update(const Update& update) const override;

  double lambd_;
  double alpha_;
  double t0_;
};

}  // namespace tessera::nn
