// Rprop: steps whose lengths follow the signs of gradients, not their sizes: Riedmiller and Braun, "A direct adaptive
// method for faster backpropagation learning: the RPROP algorithm", ICNN 1993.
//   change = g * prev;  step_size *= larger where change > 0, smaller where change < 0, within [least_step,
//   longest_step] g = 0 where change < 0;  p -= sign(g) * step_size;  prev = g
// At the first step step_size is the learning rate.
#pragma once

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct RpropOptions {
  LearningRate learning_rate = 0.1;
  double smaller = 0.5;
  double larger = 1.2;
  double least_step = 1e-6;
  double longest_step = 50;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups = {};
};

// States: prev.<parameter>, step_size.<parameter>.
class Rprop : public BaseOptimizer {
 public:
  // Throws InvalidArgument unless smaller is in (0,1), larger above 1, least_step not negative and at most
  // longest_step.
  explicit Rprop(const RpropOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"prev", "step_size"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override;
  void add_update(const Update& update) const override;

  double smaller_;
  double larger_;
  double least_step_;
  double longest_step_;
};

}  // namespace tessera::nn
