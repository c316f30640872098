// SGD: stochastic gradient descent with momentum and dampening, in PyTorch's form.
//   v = momentum * v + (1 - dampening) * g, and v = g in the first step;  p -= lr * v    nesterov: p -= lr * (g +
//   momentum * v)
#pragma once

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct SGDOptions {
  LearningRate learning_rate = 0.1;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  double loss_scale = 1;
  bool nesterov = false;
  std::vector<ParameterGroup> groups = {};
  bool is_strict = true;  // refuses what has no effect or diverges; off: takes it, as MindSpore does
};

// States: momentum f32[], accum.<parameter>.
class SGD : public BaseOptimizer {
 public:
  // Throws InvalidArgument for a negative momentum or dampening, and for nesterov without momentum or with dampening;
  // strictly, for a momentum above 1 and for dampening without momentum, too.
  explicit SGD(const SGDOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType scalar) const override;
  std::vector<std::string> slots() const override { return {"accum"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override;
  void add_update(const Update& update) const override;
  RowUpdates kind_of_row_updates(const Parameter&, double weight_decay, bool is_rate_fixed) const override;

  double momentum_;
  double dampening_;
  bool nesterov_;
};

}  // namespace tessera::nn
