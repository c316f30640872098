// FTRL: follow the regularised leader, with sparse solutions for l1 > 0: McMahan et al., "Ad click prediction: a view
// from the trenches", KDD 2013.
//   g = gradient / loss_scale + weight_decay * p;  next = moments + g^2
//   linear = linear + g - (next^-lr_power - moments^-lr_power) / lr * p;  moments = next
//   p = (sign(linear) * l1 - linear) / (next^-lr_power / lr + 2 * l2) where |linear| > l1, else 0
// In a step with lr = 0 nothing changes.
#pragma once

#include <functional>
#include <string>

#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

struct FTRLOptions {
  double initial_accum = 0.1;  // what moments start with
  LearningRate learning_rate = 0.001;
  double lr_power = -0.5;
  double l1 = 0;
  double l2 = 0;
  // It holds for all parameters, also for those called beta and gamma.
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
  // By full name: of which tables the rows that were not looked up stay, as LazyAdam leaves them. Absent: of none; the
  // first step then moves all rows, whatever the gradient.
  std::function<bool(const std::string& full_name)> is_lazy = {};
};

// States: moments.<parameter>, linear.<parameter>.
class FTRL : public BaseOptimizer {
 public:
  // Throws InvalidArgument for an initial_accum, l1 or l2 that is negative or not finite, and for an lr_power that is
  // positive or not finite.
  explicit FTRL(const FTRLOptions& options = {});

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"moments", "linear"}; }
  double initial_value(const std::string& slot) const override { return slot == "moments" ? initial_accum_ : 0; }
  std::vector<ir::Value> begin_step(ir::Graph&, DType) const override { return {}; }
  void add_update(const Update& update) const override;
  RowUpdates kind_of_row_updates(const Parameter& parameter, double weight_decay, bool is_rate_fixed) const override;
  bool is_lazy(const Parameter& parameter) const { return is_lazy_ && is_lazy_(parameter.full_name()); }

  double initial_accum_;
  double lr_power_;
  double l1_;
  double l2_;
  std::function<bool(const std::string&)> is_lazy_;
};

}  // namespace tessera::nn
