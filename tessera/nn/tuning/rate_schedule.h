// RateSchedule: a learning rate as a function of the step, from 0. An optimizer takes it where it takes a rate:
//     nn::AdamW optimizer({.learning_rate = nn::schedules::warmup(500, nn::schedules::cosine(1e-3, 20'000))});
// The function is evaluated once, in double precision, into the optimizer's table of a rate for each step; no step
// computes it again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/optimizers/learning_rate.h"

namespace tessera::nn {

class RateSchedule {
 public:
  using Function = std::function<double(int64_t step)>;
  // `name`: what errors call it. `end`: the step from which on the rate stays as it is there; absent where it changes
  // without end. Throws InvalidArgument for an empty function and a negative end.
  RateSchedule(std::string name, Function rate, std::optional<int64_t> end);

  // The rate of that step. Throws InvalidArgument for a step below 0, and for a rate that is negative or not finite.
  double operator()(int64_t step) const;
  std::optional<int64_t> end() const { return end_; }
  const std::string& name() const { return name_; }
  // The rates of the steps 0 to num_steps - 1. Throws InvalidArgument for fewer than one, and for more than a table can
  // have, 2^28.
  std::vector<double> table(int64_t num_steps) const;
  // The table up to the end of the schedule, whose last two rates are equal: the rate holds from there on. Throws
  // InvalidArgument where there is no end: then table() says how many steps the training has.
  std::vector<double> whole_table() const;
  // The same, counted in epochs of so many steps: all steps of an epoch have the rate that a step has here. Throws
  // InvalidArgument for fewer than one.
  RateSchedule per_epoch(int64_t steps_per_epoch) const;
  // Makes a learning rate of the whole table.
  operator LearningRate() const;  // NOLINT(google-explicit-constructor): {.learning_rate = cosine(0.1, 1000)}

 private:
  std::string name_;
  Function rate_;
  std::optional<int64_t> end_;
};

// The usual schedules. `t` is the step. All throw InvalidArgument naming the schedule and the option for rates that are
// negative or not finite and for numbers of steps below 1. Steps behind the last one have its rate.
namespace schedules {

RateSchedule constant(double rate);
// rate + (end_rate - rate) * t / num_steps.
RateSchedule linear(double rate, double end_rate, int64_t num_steps);
// end_rate + (rate - end_rate) * (1 + cos(pi * t / num_steps)) / 2: Loshchilov and Hutter, "SGDR", 2017.
RateSchedule cosine(double rate, int64_t num_steps, double end_rate = 0);

struct CosineRestarts {
  double rate = 0.1;
  int64_t num_steps = 1;      // of the first fall
  int64_t period_factor = 1;  // by which each fall is longer than the one before
  double end_rate = 0;
};
// cosine() that begins again at `rate` after each fall, without end. SGDR, too.
RateSchedule cosine_restarts(const CosineRestarts& options);
// end_rate + (rate - end_rate) * (1 - t / num_steps) ^ power. Throws InvalidArgument for a power that is not positive.
RateSchedule polynomial(double rate, int64_t num_steps, double power = 1, double end_rate = 0);
// rate * gamma ^ (t / num_steps), without end; is_stair: by the whole part of t / num_steps.
RateSchedule exponential(double rate, double gamma, int64_t num_steps = 1, bool is_stair = false);
// rate * gamma ^ (the number of milestones that t has reached). Throws InvalidArgument unless milestones are at least
// 1 and rise.
RateSchedule multi_step(double rate, const std::vector<int64_t>& milestones, double gamma = 0.1);
// rate / sqrt(1 + t / num_steps), without end. Behind warmup(num_steps, ...) it is the schedule of Vaswani et al.,
// "Attention Is All You Need", 2017.
RateSchedule inverse_square_root(double rate, int64_t num_steps);

struct OneCycle {
  double max_rate = 0.1;
  int64_t num_steps = 2;          // of the whole cycle, the step of the last rate included
  double rising_part = 0.3;       // of the steps, in which the rate rises
  double div_factor = 25;         // the first rate is max_rate / div_factor
  double final_div_factor = 1e4;  // the last one is the first / final_div_factor
  bool is_linear = false;         // else half a cosine up, and half a cosine down
  bool has_three_phases = false;  // it falls as fast as it rose to the first rate, then further to the last one
};
// Smith and Topin, "Super-Convergence", 2018, in PyTorch's form: the rate is max_rate at rising_part * num_steps - 1,
// and the last one at num_steps - 1. Throws InvalidArgument for factors that are not positive, a rising_part outside
// (0,1), (0,0.5) in three phases, and for so few steps that a phase has none.
RateSchedule one_cycle(const OneCycle& options);

// From start_rate at step 0 in equal steps to then(0) at step num_steps, from where `then` counts its own steps.
RateSchedule warmup(int64_t num_steps, const RateSchedule& then, double start_rate = 0);
// Each of them in turn, counting from 0 where it begins: the first one, then the next one from each milestone on.
// Throws InvalidArgument unless there is one milestone less than schedules, and they are at least 1 and rise.
RateSchedule sequence(const std::vector<RateSchedule>& schedules, const std::vector<int64_t>& milestones);

}  // namespace schedules
}  // namespace tessera::nn
