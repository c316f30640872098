// Momentum: stochastic gradient descent with a heavy ball (Sutskever et al., ICML 2013).
//   v = momentum * v + g;  p -= lr * v        nesterov: p -= lr * g + lr * momentum * v
#pragma once

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct MomentumOptions {
  LearningRate learning_rate;
  double momentum = 0.9;
  double weight_decay = 0;
  double loss_scale = 1;
  bool use_nesterov = false;
  std::vector<ParameterGroup> groups = {};
  bool is_strict = true;  // refuses what has no effect or diverges; off: takes it, as MindSpore does
};

// States: momentum f32[], moments.<parameter>.
class Momentum : public BaseOptimizer {
 public:
  // Throws InvalidArgument for a negative momentum; strictly, for one above 1 and for use_nesterov without any, too.
  explicit Momentum(const MomentumOptions& options);

 private:
  std::vector<Parameter> shared_states(DType scalar) const override;
  std::vector<std::string> slots() const override { return {"moments"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override;
  void add_update(const Update& update) const override;

  double momentum_;
  bool use_nesterov_;
};

}  // namespace tessera::nn
