// Adam and AdaMax (Kingma and Ba, ICLR 2015); AMSGrad (Reddi et al., ICLR 2018); LazyAdam, which spares rows of tables
// that nobody has looked up; AdamW, whose decay does not pass through the moments (Loshchilov and Hutter, ICLR 2019);
// and AdamWeightDecay, that without bias correction.
#pragma once

#include <functional>
#include <string>

#include "tessera/nn/optimizers/moment_optimizer.h"

namespace tessera::nn {

struct AdamOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double loss_scale = 1;
  bool use_nesterov = false;
  std::vector<ParameterGroup> groups = {};
};

//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
// States: beta1_power f32[1], beta2_power f32[1], moment1.<parameter>, moment2.<parameter>.
class Adam : public MomentOptimizer {
 public:
  // Throws InvalidArgument unless both betas are in (0,1) and eps > 0.
  explicit Adam(const AdamOptions& options = {}) : Adam("Adam", options) {}

 protected:
  template <typename Options>
  Adam(const std::string& name, const Options& options)
      : MomentOptimizer(name, options), use_nesterov_(options.use_nesterov) {}

 private:
  std::vector<Parameter> shared_states(DType scalar) const override { return powers(scalar); }
  std::vector<std::string> slots() const override { return {"moment1", "moment2"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override {
    return advance(graph, powers(scalar));
  }
  void add_update(const Update& update) const override { add_operator("adam", update, {{"nesterov", use_nesterov_}}); }

  bool use_nesterov_;
};

struct LazyAdamOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double loss_scale = 1;
  bool use_nesterov = false;
  std::vector<ParameterGroup> groups = {};
  // By full name: of which tables the rows that were not looked up stay. Absent: of all.
  std::function<bool(const std::string& full_name)> is_lazy = {};
};

// LazyAdam: of a table of which a step has looked up rows (gather along dim 0), Adam updates these rows alone; all
// others, and their moments, stay. A row that was looked up several times is updated once, by the sum of its gradients.
// Any other parameter is updated as Adam updates it. So the moments of a row decay with the steps that look it up, as
// the corrections by powers of beta do not: TensorFlow's LazyAdam, and MindSpore's for sparse gradients.
// States: as Adam.
class LazyAdam : public Adam {
 public:
  // Throws as Adam does.
  explicit LazyAdam(const LazyAdamOptions& options = {}) : Adam("LazyAdam", options), is_lazy_(options.is_lazy) {}

 private:
  RowUpdates kind_of_row_updates(const Parameter& parameter, double, bool) const override {
    return !is_lazy_ || is_lazy_(parameter.full_name()) ? RowUpdates::kAlways : RowUpdates::kNever;
  }

  std::function<bool(const std::string&)> is_lazy_;
};

struct AdaMaxOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

// AdaMax divides by the largest of the decayed gradients where Adam takes their mean square:
//   m = beta1 m + (1 - beta1) g;  v = max(beta2 v, |g|);  p -= lr / (1 - beta1^t) m / (v + eps)
// States: beta1_power f32[1], moment1.<parameter>, moment2.<parameter>.
class AdaMax : public MomentOptimizer {
 public:
  // Throws as Adam does.
  explicit AdaMax(const AdaMaxOptions& options = {}) : MomentOptimizer("AdaMax", options) {}

 private:
  std::vector<Parameter> shared_states(DType scalar) const override { return powers(scalar, /*both=*/false); }
  std::vector<std::string> slots() const override { return {"moment1", "moment2"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override {
    return advance(graph, shared_states(scalar));
  }
  void add_update(const Update& update) const override;
};

struct AMSGradOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

// AMSGrad divides by the root of the largest second moment that there was, where Adam takes the last one:
//   m, v as above;  vhat = max(vhat, v);  p -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(vhat) + eps)
// States: those of Adam and vhat.<parameter>.
class AMSGrad : public MomentOptimizer {
 public:
  // Throws as Adam does.
  explicit AMSGrad(const AMSGradOptions& options = {}) : MomentOptimizer("AMSGrad", options) {}

 private:
  std::vector<Parameter> shared_states(DType scalar) const override { return powers(scalar); }
  std::vector<std::string> slots() const override { return {"moment1", "moment2", "vhat"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override {
    return advance(graph, powers(scalar));
  }
  void add_update(const Update& update) const override;
};

struct AdamWOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

//   p -= lr weight_decay p;  m, v as above;  p -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
// States as Adam.
class AdamW : public MomentOptimizer {
 public:
  // Throws as Adam does.
  explicit AdamW(const AdamWOptions& options = {}) : MomentOptimizer("AdamW", options) {}

 private:
  std::vector<Parameter> shared_states(DType scalar) const override { return powers(scalar); }
  std::vector<std::string> slots() const override { return {"moment1", "moment2"}; }
  std::vector<ir::Value> begin_step(ir::Graph& graph, DType scalar) const override {
    return advance(graph, powers(scalar));
  }
  void add_update(const Update& update) const override { add_operator("adamw", update); }
};

struct AdamWeightDecayOptions {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  double loss_scale = 1;
  std::vector<ParameterGroup> groups = {};
};

//   m, v as above;  p -= lr (m / (sqrt(v) + eps) + weight_decay p)
// States: adam_m.<parameter>, adam_v.<parameter>.
class AdamWeightDecay : public MomentOptimizer {
 public:
  // Throws as Adam does.
  explicit AdamWeightDecay(const AdamWeightDecayOptions& options = {}) : MomentOptimizer("AdamWeightDecay", options) {}

 private:
  std::vector<Parameter> shared_states(DType) const override { return {}; }
  std::vector<std::string> slots() const override { return {"adam_m", "adam_v"}; }
  std::vector<ir::Value> begin_step(ir::Graph&, DType) const override { return {}; }
  void add_update(const Update& update) const override { add_operator("adam_weight_decay", update); }
};

}  // namespace tessera::nn
