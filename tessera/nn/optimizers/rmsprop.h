// RMSProp: gradients divided by the root of their mean square: Tieleman and Hinton, "Lecture 6.5", Coursera 2012.
//   g = gradient / loss_scale + weight_decay * p;  mean_square = decay * mean_square + (1 - decay) * g^2
//   moment = momentum * moment + lr * g / sqrt(mean_square + epsilon);  p -= moment
// centered: mean_grad = decay * mean_grad + (1 - decay) * g, and mean_square - mean_grad^2 in place of mean_square.
#pragma once

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct RMSPropOptions {
  LearningRate learning_rate = 0.1;
  double decay = 0.9;
  double momentum = 0;
  double epsilon = 1e-10;
  bool centered = false;
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
  bool is_strict = true;  // refuses what diverges; off: takes it, as MindSpore does
};

// States: mean_grad.<parameter> if centered, mean_square.<parameter>, which starts with 1, and moment.<parameter>.
class RMSProp : public BaseOptimizer {
 public:
  // Throws InvalidArgument for a negative decay or momentum, and for an epsilon that is not positive; strictly, for a
  // decay or momentum above 1, too.
  explicit RMSProp(const RMSPropOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override;
  double initial_value(const std::string& slot) const override { return slot == "mean_square" ? 1 : 0; }
  std::vector<ir::Value> begin_step(ir::Graph&, DType) const override { return {}; }
  void add_update(const Update& update) const override;

  double decay_;
  double momentum_;
  double epsilon_;
  bool centered_;
};

}  // namespace tessera::nn
