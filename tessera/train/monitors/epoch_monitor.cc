#include "tessera/train/monitors/epoch_monitor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr std::string_view kTrainLoss = "train_loss";

bool is_known_to_fall(std::string_view metric) {
  return metric == kTrainLoss || metric == "loss" || metric == "mae" || metric == "mse";
}

bool is_known_to_rise(std::string_view metric) {
  return metric.ends_with("accuracy") || metric == "precision" || metric == "recall" || metric == "f1" ||
         metric == "auc";
}

}  // namespace

EpochMonitor::EpochMonitor(std::string who, MonitorOptions options)
    : who_(std::move(who)), options_(std::move(options)) {
  const std::string& mode = options_.mode;
  if (mode != "auto" && mode != "min" && mode != "max") {
    throw InvalidArgument("{}: mode \"{}\" is not one of auto, min, max", who_, mode);
  }
  if (mode == "auto" && !is_known_to_fall(options_.monitor) && !is_known_to_rise(options_.monitor)) {
    const std::string_view rest =
        std::string_view(options_.monitor).substr(options_.monitor.starts_with("val_") ? 4 : 0);
    if (is_known_to_fall(rest) || is_known_to_rise(rest)) {
      throw InvalidArgument("{}: \"{}\" is called \"{}\" here, of the data set that `valid` gives", who_,
                            options_.monitor, rest);
    }
    throw InvalidArgument(
        "{}: whether a smaller \"{}\" is better is not known; Tessera's metrics are loss, accuracy and "
        "others, and train_loss; for a metric of your own give mode \"min\" or \"max\"",
        who_, options_.monitor);
  }
  if (!(options_.min_delta >= 0) || !std::isfinite(options_.min_delta)) {
    throw InvalidArgument("{}: min_delta must be finite and not negative, got {}", who_, options_.min_delta);
  }
  falls_ = mode == "min" || (mode == "auto" && is_known_to_fall(options_.monitor));
  seen_ = {{.best = worst()}};
}

double EpochMonitor::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return falls_ ? kInfinity : -kInfinity;
}

bool EpochMonitor::is_better(double value, double best) const {
  if (!std::isfinite(value)) return false;
  return falls_ ? value < best - options_.min_delta : value > best + options_.min_delta;
}

bool EpochMonitor::has_best() const { return seen_.back().best != worst(); }

void EpochMonitor::take_best(double best) { seen_.front().best = seen_.back().best = best; }

void EpochMonitor::begin(RunContext& run) {
  const bool goes_on = run.number > 0 && run.step > run.first_step;
  if (goes_on) {
    std::erase_if(seen_, [&](const Seen& seen) { return seen.step > static_cast<double>(run.step); });
  } else {
    seen_ = {{.best = worst()}};
  }
  if (options_.monitor == kTrainLoss) return;
  std::vector<std::string> names;
  for (const auto& metric : run.model.options().metrics) {
    if (metric->name() == options_.monitor) return;
    if (!metric->name().empty()) names.push_back(metric->name());
  }
  names.emplace_back(kTrainLoss);
  const auto near = closest(options_.monitor, names);
  throw InvalidArgument("{}: the model has no metric \"{}\"; there are {}{}; metrics are named where a model is made",
                        who_, options_.monitor, fmt::join(names, ", "),
                        near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

void EpochMonitor::step_end(const RunContext& run) {
  loss_sum_ += run.loss;
  num_losses_ += 1;
}

double EpochMonitor::value_after(RunContext& run) const {
  if (options_.monitor == kTrainLoss) {
    return num_losses_ > 0 ? loss_sum_ / num_losses_ : std::numeric_limits<double>::quiet_NaN();
  }
  if (options_.valid)
    return run.model.eval(*options_.valid, {.num_workers = options_.num_workers}).at(options_.monitor);
  const EvaluationResult& latest = run.model.latest_evaluation();
  if (latest.number == 0 || latest.step != run.step) {
    throw InvalidArgument(
        "{}: watches {}, but nothing was evaluated after epoch {}: give it a data set as `valid`, or a callback in "
        "front of it that evaluates, as EpochSummary with its `valid` does",
        who_, options_.monitor, run.epoch);
  }
  return latest.metrics.at(options_.monitor);
}

bool EpochMonitor::look(RunContext& run) {
  const auto step = static_cast<double>(run.step);
  std::erase_if(seen_, [&](const Seen& seen) { return &seen != &seen_.front() && seen.step >= step; });
  Seen now = seen_.back();
  now.step = step;
  now.value = value_after(run);
  bool is_best = is_better(now.value, now.best);
  if (is_best) now.best = now.value;
  now.waited = is_best ? 0 : now.waited + 1;
  if (run.model.is_shared()) {
    double said[] = {now.value, now.best, now.waited, is_best ? 1.0 : 0.0};
    run.model.context().world().broadcast(said, 4, DType::kF64, 0, who_);
    now.value = said[0];
    now.best = said[1];
    now.waited = said[2];
    is_best = said[3] == 1;
  }
  seen_.push_back(now);
  return is_best;
}

}  // namespace tessera::train
