// ExponentialMovingAverage: an optimizer around another one, which keeps an average of each parameter that is trained:
//     nn::AdamW adam({.learning_rate = 1e-3});
//     nn::ExponentialMovingAverage optimizer(adam, {.decay = 0.999});
// Behind each update, with the parameter as it is then: average += (1 - decay) * (parameter - average); Polyak and
// Juditsky, 1992, with weights that fall. The first update copies the parameter. What is no trained parameter, as a
// moving statistic, has no average.
//
// States, behind those of the other optimizer: ema_step i32[1], the updates so far; ema.<parameter>, of the parameter's
// type, f32 for half types. They lie, are saved and go on as its other states do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

struct MovingAverageOptions {
  // How much of the average each update keeps.
  double decay = 0.999;
  // So many updates are copied before the first one that is averaged with what was there; the first of all always is.
  int64_t start_step = 0;
  // The decay of the n-th update that is averaged is at most (1 + n) / (10 + n): early ones are forgotten soon.
  bool warms_up = false;
  // After each so many updates the parameters take their averages' values; 0: never.
  int64_t overwrite_steps = 0;
};

class ExponentialMovingAverage final : public Optimizer {
 public:
  // The other optimizer outlives this one. Throws InvalidArgument for a decay outside of [0,1], and for numbers of
  // steps below 0.
  explicit ExponentialMovingAverage(Optimizer& optimizer, const MovingAverageOptions& options = {});

  void update(ir::Graph& graph, std::span<const ParameterGradient> gradients) override;
  std::vector<Parameter> states(std::span<Parameter* const> parameters) const override;
  void set_state_prefix(const std::string& prefix) override;
  std::string name() const override { return optimizer_.name(); }
  RowUpdates row_updates(const Parameter& parameter) const override { return optimizer_.row_updates(parameter); }
  std::string average_of(const Parameter& parameter) const override;
  std::string average_counter() const override;

 private:
  Parameter counter() const;
  Parameter average(const Parameter& parameter) const;
  // How much of a new parameter the average takes that warms up, f64[]. `step`: the updates before, i32[].
  ir::Value warm_weight(const ir::Value& step) const;

  Optimizer& optimizer_;
  MovingAverageOptions options_;
  std::string state_prefix_;
};

}  // namespace tessera::nn
