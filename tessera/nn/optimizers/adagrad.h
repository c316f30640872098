// Adagrad and Adadelta: steps that shrink where gradients were large.
#pragma once

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct AdagradOptions {
  double accum = 0.1;  // what accum starts with
  LearningRate learning_rate = 0.001;
  bool update_slots = true;  // false: accum stays as it is
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

// Adagrad: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization",
// JMLR 2011.
//   g = gradient / loss_scale + weight_decay * p;  accum = accum + g^2;  p -= lr * g / sqrt(accum)
// States: accum.<parameter>.
class Adagrad : public BaseOptimizer {
 public:
  // Throws InvalidArgument for a negative accum.
  explicit Adagrad(const AdagradOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"accum"}; }
  double initial_value(const std::string&) const override { return accum_; }
  std::vector<ir::Value> begin_step(ir::Graph&, DType) const override { return {}; }
  void add_update(const Update& update) const override;
  RowUpdates kind_of_row_updates(const Parameter&, double weight_decay, bool is_rate_fixed) const override;

  double accum_;
  bool update_slots_;
};

struct AdadeltaOptions {
  LearningRate learning_rate = 1.0;
  double rho = 0.9;
  double epsilon = 1e-6;
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

// Adadelta: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
//   accum = rho * accum + (1 - rho) * g^2;  step = g * sqrt(accum_update + epsilon) / sqrt(accum + epsilon)
//   accum_update = rho * accum_update + (1 - rho) * step^2;  p -= lr * step
// States: accum.<parameter>, accum_update.<parameter>.
class Adadelta : public BaseOptimizer {
 public:
  // Throws InvalidArgument unless rho is in [0,1] and epsilon is not negative.
  explicit Adadelta(const AdadeltaOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"accum", "accum_update"}; }
  std::vector<ir::Value> begin_step(ir::Graph&, DType) const override { return {}; }
  void add_update(const Update& update) const override;

  double rho_;
  double epsilon_;
};

}  // namespace tessera::nn
