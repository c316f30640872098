#include "tessera/nn/tuning/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::nn {
namespace {

// As of the tables in optimizers/learning_rate.h: 2 GiB.
constexpr int64_t kMostSteps = int64_t{1} << 28;

void check_rate(std::string_view who, std::string_view what, double rate) {
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw InvalidArgument("{}: {} must be finite and not negative, got {}", who, what, rate);
  }
}

void check_positive(std::string_view who, std::string_view what, double number) {
  if (!(number > 0) || !std::isfinite(number)) {
    throw InvalidArgument("{}: {} must be finite and positive, got {}", who, what, number);
  }
}

void check_steps(std::string_view who, std::string_view what, int64_t steps) {
  if (steps < 1 || steps > kMostSteps) {
    throw InvalidArgument("{}: {} must be from 1 to {}, got {}", who, what, kMostSteps, steps);
  }
}

void check_milestones(std::string_view who, const std::vector<int64_t>& milestones) {
  int64_t last = 0;
  for (const int64_t milestone : milestones) {
    check_steps(who, "a milestone", milestone);
    if (milestone <= last) throw InvalidArgument("{}: milestones must rise, got {} after {}", who, milestone, last);
    last = milestone;
  }
}

// From `from` to `to` along half a cosine; `part` in [0,1].
double along_cosine(double from, double to, double part) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

}  // namespace

RateSchedule::RateSchedule(std::string name, Function rate, std::optional<int64_t> end)
    : name_(std::move(name)), rate_(std::move(rate)), end_(end) {
  if (!rate_) throw InvalidArgument("{}: the function of a schedule is empty", name_);
  if (end_ && *end_ < 0) throw InvalidArgument("{}: the end of a schedule must not be negative, got {}", name_, *end_);
}

double RateSchedule::operator()(int64_t step) const {
  if (step < 0) throw InvalidArgument("{}: steps count from 0, got {}", name_, step);
  const double rate = rate_(end_ ? std::min(step, *end_) : step);
  check_rate(name_, fmt::format("the rate of step {}", step), rate);
  return rate;
}

std::vector<double> RateSchedule::table(int64_t num_steps) const {
  check_steps(name_, "the number of steps of a table", num_steps);
  std::vector<double> rates;
  rates.reserve(static_cast<size_t>(num_steps));
  for (int64_t step = 0; step < num_steps; ++step) rates.push_back((*this)(step));
  return rates;
}

std::vector<double> RateSchedule::whole_table() const {
  if (!end_) {
    throw InvalidArgument(
        "{}: the rate changes without end; give the optimizer the rates of so many steps as the training has, "
        "table(num_steps)",
        name_);
  }
  return table(*end_ + 2);
}

RateSchedule RateSchedule::per_epoch(int64_t steps_per_epoch) const {
  check_steps(name_, "steps_per_epoch", steps_per_epoch);
  std::optional<int64_t> end;
  if (end_) end = *end_ * steps_per_epoch;
  return {name_, [own = *this, steps_per_epoch](int64_t step) { return own(step / steps_per_epoch); }, end};
}

RateSchedule::operator LearningRate() const { return whole_table(); }

namespace schedules {

RateSchedule constant(double rate) {
  check_rate("constant", "rate", rate);
  return {"constant", [rate](int64_t) { return rate; }, 0};
}

RateSchedule linear(double rate, double end_rate, int64_t num_steps) {
  check_rate("linear", "rate", rate);
  check_rate("linear", "end_rate", end_rate);
  check_steps("linear", "num_steps", num_steps);
  const auto change = [=](int64_t step) {
    const double part = static_cast<double>(step) / static_cast<double>(num_steps);
    return rate * (1 - part) + end_rate * part;
  };
  return {"linear", change, num_steps};
}

RateSchedule cosine(double rate, int64_t num_steps, double end_rate) {
  check_rate("cosine", "rate", rate);
  check_rate("cosine", "end_rate", end_rate);
  check_steps("cosine", "num_steps", num_steps);
  const auto fall = [=](int64_t step) {
    return along_cosine(rate, end_rate, static_cast<double>(step) / static_cast<double>(num_steps));
  };
  return {"cosine", fall, num_steps};
}

RateSchedule cosine_restarts(const CosineRestarts& options) {
  check_rate("cosine_restarts", "rate", options.rate);
  check_rate("cosine_restarts", "end_rate", options.end_rate);
  check_steps("cosine_restarts", "num_steps", options.num_steps);
  check_steps("cosine_restarts", "period_factor", options.period_factor);
  const auto fall = [options](int64_t step) {
    int64_t period = options.num_steps;
    if (options.period_factor == 1) step %= period;
    while (step >= period) {
      step -= period;
      int64_t longer = 0;
      const bool is_over = __builtin_mul_overflow(period, options.period_factor, &longer);
      period = is_over ? std::numeric_limits<int64_t>::max() : longer;
    }
    return along_cosine(options.rate, options.end_rate, static_cast<double>(step) / static_cast<double>(period));
  };
  return {"cosine_restarts", fall, std::nullopt};
}

RateSchedule polynomial(double rate, int64_t num_steps, double power, double end_rate) {
  check_rate("polynomial", "rate", rate);
  check_rate("polynomial", "end_rate", end_rate);
  check_steps("polynomial", "num_steps", num_steps);
  check_positive("polynomial", "power", power);
  const auto fall = [=](int64_t step) {
    const double left = 1 - static_cast<double>(step) / static_cast<double>(num_steps);
    return end_rate + (rate - end_rate) * std::pow(left, power);
  };
  return {"polynomial", fall, num_steps};
}

RateSchedule exponential(double rate, double gamma, int64_t num_steps, bool is_stair) {
  check_rate("exponential", "rate", rate);
  check_rate("exponential", "gamma", gamma);
  check_steps("exponential", "num_steps", num_steps);
  const auto fall = [=](int64_t step) {
    const double decays =
        is_stair ? static_cast<double>(step / num_steps) : static_cast<double>(step) / static_cast<double>(num_steps);
    return rate * std::pow(gamma, decays);
  };
  return {"exponential", fall, std::nullopt};
}

RateSchedule multi_step(double rate, const std::vector<int64_t>& milestones, double gamma) {
  check_rate("multi_step", "rate", rate);
  check_rate("multi_step", "gamma", gamma);
  check_milestones("multi_step", milestones);
  if (milestones.empty()) throw InvalidArgument("multi_step: needs at least one milestone");
  const auto fall = [=](int64_t step) {
    const auto reached = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return rate * std::pow(gamma, static_cast<double>(reached));
  };
  return {"multi_step", fall, milestones.back()};
}

RateSchedule inverse_square_root(double rate, int64_t num_steps) {
  check_rate("inverse_square_root", "rate", rate);
  check_steps("inverse_square_root", "num_steps", num_steps);
  const auto fall = [=](int64_t step) {
    return rate / std::sqrt(1 + static_cast<double>(step) / static_cast<double>(num_steps));
  };
  return {"inverse_square_root", fall, std::nullopt};
}

RateSchedule one_cycle(const OneCycle& options) {
  constexpr const char* kWho = "one_cycle";
  check_rate(kWho, "max_rate", options.max_rate);
  check_steps(kWho, "num_steps", options.num_steps);
  check_positive(kWho, "div_factor", options.div_factor);
  check_positive(kWho, "final_div_factor", options.final_div_factor);
  const double most = options.has_three_phases ? 0.5 : 1;
  if (!(options.rising_part > 0 && options.rising_part < most)) {
    throw InvalidArgument("{}: rising_part must be between 0 and {}, got {}", kWho, most, options.rising_part);
  }
  // Where each phase ends, and at which rate.
  struct Phase {
    double end = 0;
    double rate = 0;
  };
  const auto num_steps = static_cast<double>(options.num_steps);
  const double first = options.max_rate / options.div_factor;
  std::vector<Phase> phases{{0, first}, {options.rising_part * num_steps - 1, options.max_rate}};
  if (options.has_three_phases) phases.push_back({2 * options.rising_part * num_steps - 2, first});
  phases.push_back({num_steps - 1, first / options.final_div_factor});
  for (size_t i = 1; i < phases.size(); ++i) {
    if (phases[i].end > phases[i - 1].end) continue;
    throw InvalidArgument("{}: {} steps are too few: with rising_part {} phase {} has none", kWho, options.num_steps,
                          options.rising_part, i);
  }
  const auto cycle = [phases, is_linear = options.is_linear](int64_t step) {
    const auto now = static_cast<double>(step);
    size_t i = 1;
    while (i + 1 < phases.size() && now > phases[i].end) ++i;
    const double part = (now - phases[i - 1].end) / (phases[i].end - phases[i - 1].end);
    const double from = phases[i - 1].rate;
    const double to = phases[i].rate;
    return is_linear ? from * (1 - part) + to * part : along_cosine(from, to, part);
  };
  return {kWho, cycle, options.num_steps - 1};
}

RateSchedule warmup(int64_t num_steps, const RateSchedule& then, double start_rate) {
  check_steps("warmup", "num_steps", num_steps);
  check_rate("warmup", "start_rate", start_rate);
  const auto rise = [=](int64_t step) {
    if (step >= num_steps) return then(step - num_steps);
    const double part = static_cast<double>(step) / static_cast<double>(num_steps);
    return start_rate * (1 - part) + then(0) * part;
  };
  std::optional<int64_t> end;
  if (then.end()) end = num_steps + *then.end();
  return {fmt::format("warmup, then {}", then.name()), rise, end};
}

RateSchedule sequence(const std::vector<RateSchedule>& schedules, const std::vector<int64_t>& milestones) {
  if (schedules.size() != milestones.size() + 1) {
    throw InvalidArgument("sequence: needs one milestone less than schedules, got {} schedules and {} milestones",
                          schedules.size(), milestones.size());
  }
  check_milestones("sequence", milestones);
  const auto in_turn = [=](int64_t step) {
    const auto i = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return schedules[static_cast<size_t>(i)](i == 0 ? step : step - milestones[static_cast<size_t>(i) - 1]);
  };
  const int64_t last_begin = milestones.empty() ? 0 : milestones.back();
  std::optional<int64_t> end;
  if (schedules.back().end()) end = last_begin + *schedules.back().end();
  return {"sequence", in_turn, end};
}

}  // namespace schedules
}  // namespace tessera::nn
