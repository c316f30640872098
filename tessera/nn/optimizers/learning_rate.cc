#include "tessera/nn/optimizers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "tessera/base/error.h"

namespace tessera::nn {
namespace {

void check_rate(std::string_view what, double rate) {
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw InvalidArgument("{} must be finite and not negative, got {}", what, rate);
  }
}

void check_count(std::string_view what, int64_t count) {
  if (count < 1) throw InvalidArgument("learning-rate schedule: {} must be at least 1, got {}", what, count);
}

// 2 GiB.
constexpr int64_t kMostSteps = int64_t{1} << 28;

void check_size(const char* what, int64_t steps) {
  if (steps > kMostSteps) {
    throw InvalidArgument(
        "learning-rate schedule: {} must be at most {}, got {}: a table has a rate for each step; give the optimizer a "
        "schedule that computes it",
        what, kMostSteps, steps);
  }
}

// One entry per step: rate_of(epoch).
template <typename Schedule, typename RateOf>
std::vector<double> table_of(const Schedule& schedule, RateOf rate_of) {
  check_count("total_steps", schedule.total_steps);
  check_count("steps_per_epoch", schedule.steps_per_epoch);
  check_size("total_steps", schedule.total_steps);
  std::vector<double> table;
  for (int64_t step = 0; step < schedule.total_steps; ++step) {
    const int64_t epoch = step / schedule.steps_per_epoch;
    table.push_back(rate_of(static_cast<double>(epoch)));
  }
  return table;
}

}  // namespace

LearningRate::LearningRate(double fixed) : is_fixed_(true), values_{fixed} { check_rate("learning rate", fixed); }

LearningRate::LearningRate(std::vector<double> table) : is_fixed_(false), values_(std::move(table)) {
  if (values_.empty()) throw InvalidArgument("learning rate: the table of a schedule must have at least one entry");
  for (size_t step = 0; step < values_.size(); ++step) {
    check_rate(fmt::format("learning rate of step {}", step), values_[step]);
  }
}

LearningRate::LearningRate(Schedule schedule) : is_fixed_(false), schedule_(std::move(schedule)) {
  if (!schedule_) throw InvalidArgument("learning rate: the schedule is empty");
}

std::vector<double> piecewise_constant_lr(const std::vector<int64_t>& milestones, const std::vector<double>& rates) {
  if (milestones.size() != rates.size() || milestones.empty()) {
    throw InvalidArgument(
        "piecewise_constant_lr: needs one rate per milestone, at least one; got {} rates, {} milestones", rates.size(),
        milestones.size());
  }
  std::vector<double> table;
  for (size_t i = 0; i < milestones.size(); ++i) {
    const auto begin = static_cast<int64_t>(table.size());
    if (milestones[i] <= begin) {
      throw InvalidArgument("piecewise_constant_lr: milestones must rise, got {} after {}", milestones[i], begin);
    }
    check_rate("piecewise_constant_lr: rate", rates[i]);
    check_size("a milestone", milestones[i]);
    table.resize(static_cast<size_t>(milestones[i]), rates[i]);
  }
  return table;
}

std::vector<double> exponential_decay_lr(const ExponentialDecay& schedule) {
  check_count("decay_epochs", schedule.decay_epochs);
  check_rate("learning_rate", schedule.learning_rate);
  check_rate("decay_rate", schedule.decay_rate);
  return table_of(schedule, [&](double epoch) {
    const double decays = epoch / static_cast<double>(schedule.decay_epochs);
    return schedule.learning_rate * std::pow(schedule.decay_rate, schedule.is_stair ? std::floor(decays) : decays);
  });
}

std::vector<double> cosine_decay_lr(const CosineDecay& schedule) {
  check_count("decay_epochs", schedule.decay_epochs);
  check_rate("min_lr", schedule.min_lr);
  check_rate("max_lr", schedule.max_lr);
  if (schedule.min_lr > schedule.max_lr) {
    throw InvalidArgument("cosine_decay_lr: min_lr {} must not exceed max_lr {}", schedule.min_lr, schedule.max_lr);
  }
  return table_of(schedule, [&](double epoch) {
    const double done = std::min(epoch / static_cast<double>(schedule.decay_epochs), 1.0);
    return schedule.min_lr + 0.5 * (schedule.max_lr - schedule.min_lr) * (1 + std::cos(std::numbers::pi * done));
  });
}

std::vector<double> polynomial_decay_lr(const PolynomialDecay& schedule) {
  check_count("decay_epochs", schedule.decay_epochs);
  check_rate("learning_rate", schedule.learning_rate);
  check_rate("end_learning_rate", schedule.end_learning_rate);
  if (!(schedule.power > 0))
    throw InvalidArgument("polynomial_decay_lr: power must be positive, got {}", schedule.power);
  return table_of(schedule, [&](double epoch) {
    auto decay_epochs = static_cast<double>(schedule.decay_epochs);
    if (schedule.restart) {
      decay_epochs *= std::max(std::ceil(epoch / decay_epochs), 1.0);
    } else {
      epoch = std::min(epoch, decay_epochs);
    }
    const double left = std::pow(1 - epoch / decay_epochs, schedule.power);
    return (schedule.learning_rate - schedule.end_learning_rate) * left + schedule.end_learning_rate;
  });
}

std::vector<double> warmup_lr(const Warmup& schedule) {
  check_count("warmup_epochs", schedule.warmup_epochs);
  check_rate("learning_rate", schedule.learning_rate);
  const auto warmup_epochs = static_cast<double>(schedule.warmup_epochs);
  return table_of(
      schedule, [&](double epoch) { return schedule.learning_rate * std::min(epoch, warmup_epochs) / warmup_epochs; });
}

std::vector<double> with_warmup(std::vector<double> table, int64_t steps) {
  if (steps < 0) throw InvalidArgument("with_warmup: steps must not be negative, got {}", steps);
  const auto warm = std::min(static_cast<size_t>(steps), table.size());
  for (size_t step = 0; step < warm; ++step) table[step] *= static_cast<double>(step + 1) / static_cast<double>(steps);
  return table;
}

}  // namespace tessera::nn
