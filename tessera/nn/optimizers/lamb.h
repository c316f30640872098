// LAMB: Adam whose step is as long, for each parameter, as the parameter itself times the rate; for large batches. You
// et al., ICLR 2020.
#pragma once

#include "tessera/nn/optimizers/moment_optimizer.h"

namespace tessera::nn {

struct LambOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p
//   p -= lr |p| / |r| r, without the factor where one of the norms is 0
// States: lamb_m.<parameter>, lamb_v.<parameter>.
class Lamb : public MomentOptimizer {
 public:
  // Throws InvalidArgument unless both betas are in (0,1) and eps > 0.
  explicit Lamb(const LambOptions& options = {}) : MomentOptimizer("Lamb", options) {}

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"lamb_m", "lamb_v"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override;
  void add_update(const Update& update) const override;
};

}  // namespace tessera::nn
