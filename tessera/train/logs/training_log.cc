#include "tessera/train/logs/training_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/session/session.h"
#include "tessera/train/core/process_memory.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

// To the thousandth: more is noise.
double rounded(double value) { return std::round(value * 1000) / 1000; }

int64_t now_ns(const RunContext& run) { return run.model.context().clock().monotonic_ns(); }

double rows_per_second(int64_t rows, int64_t duration_ns) {
  return rounded(static_cast<double>(rows) * 1e9 / static_cast<double>(std::max<int64_t>(duration_ns, 1)));
}

}  // namespace

TrainingLog::TrainingLog(std::string who, LogOptions options) : who_(std::move(who)), options_(std::move(options)) {
  if (options_.every_steps < 0) {
    throw InvalidArgument("{}: every_steps must not be negative, got {}", who_, options_.every_steps);
  }
}

void TrainingLog::attempt(FunctionRef<void()> f) {
  if (!is_open_) return;
  try {
    f();
  } catch (const IoError& error) {
    is_open_ = false;
    log_warning("{}: the log ends here, the training goes on: {}", who_, error.what());
  }
}

void TrainingLog::require_begun() const {
  if (run_ == nullptr) {
    throw InvalidArgument("{}: numbers can be added while a training goes on that has it among its callbacks", who_);
  }
}

void TrainingLog::begin(RunContext& run) {
  run_ = nullptr;
  epoch_ = run.epoch;
  step_ = run.step;
  num_evaluations_ = run.model.latest_evaluation().number;
  began_ns_ = epoch_began_ns_ = last_step_ns_ = marked_ns_ = now_ns(run);
  looked_ns_ = 0;
  is_open_ = has_started_ = false;
  if (run.model.context().rank() == 0) {
    begin_writing(run);
    is_open_ = true;
  }
  run_ = &run;  // of a begin() that throws there is no end()
}

void TrainingLog::begin_writing(RunContext& run) {
  rates_.emplace(std::as_const(run.model).session(), run.model.parameter_names());
  // Where a job recovers, an earlier process of it may have begun this training and written a few steps.
  auto* const recovery = run.number > 0 ? run.model.context().recovery() : nullptr;
  const bool is_begun_anew = recovery != nullptr && recovery->generation() > 1;
  const auto beginning = is_begun_anew  ? Beginning::kGoesOnInItsJob
                         : run.step > 0 ? Beginning::kGoesOn
                                        : Beginning::kNew;
  try {
    seconds_before_ = open(run, beginning);
  } catch (...) {
    let_go();  // there is no end()
    throw;
  }
}

void TrainingLog::start_once(RunContext& run) {
  if (!is_open_ || has_started_) return;
  start(run);
  has_started_ = true;
}

void TrainingLog::epoch_begin(RunContext& run) {
  start_once(run);
  write_evaluations(run);
  epoch_began_ns_ = last_step_ns_ = marked_ns_ = now_ns(run);
  marked_rows_ = run.rows_of_epoch;
  loss_sum_ = 0;
  num_losses_ = 0;
}

std::optional<double> TrainingLog::learning_rate(const RunContext& run) const {
  return options_.learning_rate ? options_.learning_rate(step_) : rates_->read(std::as_const(run.model).session());
}

TrainingRecord TrainingLog::record_now(const RunContext& run, const char* kind) {
  const int64_t now = now_ns(run);
  // Asking the system takes microseconds.
  if (looked_ns_ == 0 || now - looked_ns_ >= 1'000'000'000) {
    resident_bytes_ = resident_bytes_of_process();
    looked_ns_ = now;
  }
  return {.kind = kind,
          .wall_ms = run.model.context().clock().wall_ms(),
          .seconds = rounded(seconds_before_ + static_cast<double>(now - began_ns_) / 1e9),
          .epoch = epoch_,
          .step = step_,
          .resident_bytes = resident_bytes_,
          .arena_bytes = std::as_const(run.model).session().arena_bytes()};
}

void TrainingLog::write_evaluations(const RunContext& run) {
  const EvaluationResult& latest = run.model.latest_evaluation();
  if (latest.number == std::exchange(num_evaluations_, latest.number) || !is_open_) return;
  TrainingRecord record = record_now(run, "evaluation");
  record.step = latest.step;
  for (const auto& [name, value] : latest.metrics) {
    if (!name.empty()) record.metrics[name] = value;
  }
  if (!record.metrics.empty()) attempt([&] { write(record); });
}

void TrainingLog::step_end(RunContext& run) {
  write_evaluations(run);
  const int64_t previous = std::exchange(step_, run.step);
  epoch_ = run.epoch;
  loss_sum_ += run.loss;
  ++num_losses_;
  last_step_ns_ = now_ns(run);
  const int64_t every = options_.every_steps;
  if (is_open_ && every > 0 && run.step / every > previous / every) {
    attempt([&] {
      TrainingRecord record = record_now(run, "step");
      record.loss = run.loss;
      record.learning_rate = learning_rate(run);
      record.rows_per_second = rows_per_second(run.rows_of_epoch - marked_rows_, last_step_ns_ - marked_ns_);
      marked_ns_ = last_step_ns_;
      marked_rows_ = run.rows_of_epoch;
      write(record);
    });
  }
  after_step(run, previous);
}

void TrainingLog::epoch_end(RunContext& run) {
  attempt([&] {
    TrainingRecord record = record_now(run, "epoch");
    if (num_losses_ > 0) record.loss = loss_sum_ / static_cast<double>(num_losses_);
    record.learning_rate = learning_rate(run);
    record.rows_per_second = rows_per_second(run.rows_of_epoch, last_step_ns_ - epoch_began_ns_);
    write(record);
  });
  write_evaluations(run);
}

void TrainingLog::end(RunContext& run) {
  const struct LetGo {  // whatever fails
    TrainingLog& log;
    ~LetGo() {
      log.run_ = nullptr;
      log.is_open_ = false;
      log.let_go();
    }
  } let_go_of{*this};
  // A training that was refused before its first step has no log, and the older one's stays where it is.
  if (!has_started_ && run.has_failed) return;
  attempt([&] { start_once(run); });
  write_evaluations(run);
  attempt([&] { close(run); });
}

void TrainingLog::add_metrics(const std::map<std::string, double>& metrics) {
  require_begun();
  attempt([&] {
    TrainingRecord record = record_now(*run_, "evaluation");
    record.metrics = metrics;
    start_once(*run_);
    if (!metrics.empty()) write(record);
  });
}

}  // namespace tessera::train
