// LearningRate: one number, or one per step, from a table or by operators. Tables of the usual schedules, each
// `total_steps` long; epochs are counted from 0 and one epoch is `steps_per_epoch` steps, so that with steps_per_epoch
// = 1 they change at every step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::nn {

class LearningRate {
 public:
  // Adds the rate of a step, i32[], to the step's graph: one floating element.
  using Schedule = std::function<ir::Value(ir::Value step)>;

  // The first two throw InvalidArgument for a value that is negative or not finite, and for an empty table.
  LearningRate(double fixed);               // NOLINT: implicit, {.learning_rate = 0.1}
  LearningRate(std::vector<double> table);  // NOLINT: the value of each step; the last one holds for all later steps
  LearningRate(Schedule schedule);          // NOLINT

  // Null unless the rate is one.
  const Schedule& schedule() const { return schedule_; }
  bool is_fixed() const { return is_fixed_; }
  // One entry if fixed, none of a schedule.
  const std::vector<double>& values() const { return values_; }

 private:
  bool is_fixed_;
  std::vector<double> values_;
  Schedule schedule_;
};

// All of the following throw InvalidArgument for counts below 1 and rates below 0.

// rates[i] up to milestones[i] steps. The table is as long as the last milestone says; milestones rise.
std::vector<double> piecewise_constant_lr(const std::vector<int64_t>& milestones, const std::vector<double>& rates);

struct ExponentialDecay {
  double learning_rate = 0.1;
  double decay_rate = 0.9;
  int64_t total_steps = 1;
  int64_t steps_per_epoch = 1;
  int64_t decay_epochs = 1;
  bool is_stair = false;  // decays once in decay_epochs instead of a little every epoch
};
// learning_rate * decay_rate ^ (epoch / decay_epochs).
std::vector<double> exponential_decay_lr(const ExponentialDecay& schedule);

struct CosineDecay {
  double min_lr = 0;
  double max_lr = 0.1;
  int64_t total_steps = 1;
  int64_t steps_per_epoch = 1;
  int64_t decay_epochs = 1;
};
// The rate falls from max_lr to min_lr along half a cosine over decay_epochs, then it is min_lr: Loshchilov and Hutter,
// "SGDR", 2017.
std::vector<double> cosine_decay_lr(const CosineDecay& schedule);

struct PolynomialDecay {
  double learning_rate = 0.1;
  double end_learning_rate = 0;
  int64_t total_steps = 1;
  int64_t steps_per_epoch = 1;
  int64_t decay_epochs = 1;
  double power = 1;
  bool restart = false;  // after decay_epochs the decay goes on over twice, then three times as many, ...
};
// (learning_rate - end_learning_rate) * (1 - epoch / decay_epochs) ^ power + end_learning_rate.
std::vector<double> polynomial_decay_lr(const PolynomialDecay& schedule);

struct Warmup {
  double learning_rate = 0.1;
  int64_t total_steps = 1;
  int64_t steps_per_epoch = 1;
  int64_t warmup_epochs = 1;
};
// The rate rises from 0 in equal steps to learning_rate at epoch warmup_epochs, and stays there.
std::vector<double> warmup_lr(const Warmup& schedule);
// `table` with its first `steps` entries multiplied by 1/steps, 2/steps, ..., 1.
std::vector<double> with_warmup(std::vector<double> table, int64_t steps);

}  // namespace tessera::nn
