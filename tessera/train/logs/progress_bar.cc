#include "tessera/train/logs/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/session/session.h"
#include "tessera/train/core/process_memory.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr size_t kMostTimes = 101;          // of which the median is taken
constexpr int64_t kRedrawNs = 100'000'000;  // between two drawings over
constexpr int kTerminalWidth = 80;          // where the terminal does not say
constexpr int64_t kBarWidth = 24;

int terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kTerminalWidth;
}

double in_thousandths(double value) { return std::round(value * 1000) / 1000; }

}  // namespace

LogFormat parse_log_format(const std::string& name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  throw InvalidArgument("log_format must be \"text\" or \"json\", is \"{}\"", name);
}

void StepTimes::add(int64_t num_steps, int64_t duration_ns) {
  if (num_steps < 1) return;
  const double seconds = static_cast<double>(duration_ns) / 1e9 / static_cast<double>(num_steps);
  if (seconds_.size() < kMostTimes) {
    next_ = 0;
    seconds_.push_back(seconds);
    return;
  }
  seconds_[next_] = seconds;
  next_ = (next_ + 1) % kMostTimes;
}

double StepTimes::median_seconds() const {
  if (seconds_.empty()) return 0;
  std::vector<double> sorted = seconds_;
  const auto middle = sorted.begin() + static_cast<int64_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_text(const TrainingRecord& record, const std::string& row_name, int width) {
  const ProgressRecord progress = record.progress.value_or(ProgressRecord{});
  const int64_t steps = std::max<int64_t>(progress.steps_per_epoch, 1);
  const int64_t filled = std::clamp<int64_t>(progress.step_in_epoch * kBarWidth / steps, 0, kBarWidth);
  const auto bar = fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '#'),
                               std::string(static_cast<size_t>(kBarWidth - filled), '.'));
  std::string text = fmt::format(" {}/{}", progress.step_in_epoch, progress.steps_per_epoch);
  if (record.loss) text += fmt::format("  loss {:.4f}", *record.loss);
  if (record.learning_rate) text += fmt::format("  rate {:.4g}", *record.learning_rate);
  if (record.rows_per_second) text += fmt::format("  {:.1f} {}/s", *record.rows_per_second, row_name);
  text += fmt::format("  {}, in all {} left", duration_text(progress.epoch_seconds_left),
                      duration_text(progress.seconds_left));
  if (record.resident_bytes > 0) text += "  " + format_bytes(record.resident_bytes);
  const auto epoch = fmt::format("epoch {}/{}", record.epoch, progress.num_epochs);
  const std::string whole = epoch + bar + text;
  const auto most = static_cast<size_t>(width);
  if (width <= 0 || whole.size() <= most) return whole;
  return (epoch + text).substr(0, most);
}

ProgressBar::ProgressBar(ProgressBarOptions options, PrintLine print)
    : options_(std::move(options)),
      print_(std::move(print)),
      is_terminal_(options_.format == LogFormat::kText && ::isatty(STDOUT_FILENO) == 1) {
  if (options_.rows_per_step < 0 || !(options_.interval_s >= 0)) {
    throw InvalidArgument("ProgressBar: rows_per_step and interval_s must not be negative, got {} and {}",
                          options_.rows_per_step, options_.interval_s);
  }
}

void ProgressBar::begin(RunContext& run) {
  began_ns_ = run.model.context().clock().monotonic_ns();
  printed_ns_ = 0;
  last_step_ = run.step;
  num_evaluations_ = run.model.latest_evaluation().number;
  times_.clear();
  if (run.model.context().rank() == 0) {
    rates_.emplace(std::as_const(run.model).session(), run.model.parameter_names());
  }
}

void ProgressBar::epoch_begin(RunContext& run) {
  if (run.model.context().rank() != 0) return;
  print_evaluations(run);
  epoch_began_ns_ = last_step_ns_ = run.model.context().clock().monotonic_ns();
  first_step_of_epoch_ = run.step;
  loss_sum_ = 0;
  num_losses_ = 0;
}

bool ProgressBar::is_due(int64_t now_ns) {
  const int64_t interval_ns = is_terminal_ ? kRedrawNs : static_cast<int64_t>(options_.interval_s * 1e9);
  if (printed_ns_ != 0 && now_ns - printed_ns_ < interval_ns) return false;
  printed_ns_ = now_ns;
  return true;
}

void ProgressBar::step_end(RunContext& run) {
  if (run.model.context().rank() != 0) return;
  const int64_t now = run.model.context().clock().monotonic_ns();
  print_evaluations(run);
  times_.add(run.step - std::exchange(last_step_, run.step), now - std::exchange(last_step_ns_, now));
  epoch_ = run.epoch;
  loss_sum_ += run.loss;
  ++num_losses_;
  if (options_.steps && is_due(now)) draw(progress_of(run), false);
}

TrainingRecord ProgressBar::record_of(const RunContext& run, const char* kind) const {
  const auto& clock = run.model.context().clock();
  return {.kind = kind,
          .wall_ms = clock.wall_ms(),
          .seconds = in_thousandths(static_cast<double>(clock.monotonic_ns() - began_ns_) / 1e9),
          .epoch = epoch_,
          .step = last_step_,
          .resident_bytes = resident_bytes_of_process(),
          .arena_bytes = std::as_const(run.model).session().arena_bytes()};
}

TrainingRecord ProgressBar::progress_of(const RunContext& run) const {
  TrainingRecord record = record_of(run, "progress");
  record.loss = run.loss;
  record.learning_rate = rates_->read(std::as_const(run.model).session());
  const double step_s = times_.median_seconds();
  const int64_t rows =
      options_.rows_per_step > 0 ? (run.step - first_step_of_epoch_) * options_.rows_per_step : run.rows_of_epoch;
  const double epoch_s = std::max(static_cast<double>(last_step_ns_ - epoch_began_ns_) / 1e9, 1e-9);
  record.rows_per_second = in_thousandths(static_cast<double>(rows) / epoch_s);
  const int64_t left = run.steps_per_epoch - run.step_in_epoch;
  const int64_t later = std::max<int64_t>(run.num_epochs - run.epoch, 0) * run.steps_per_epoch;
  record.progress = {.num_epochs = run.num_epochs,
                     .step_in_epoch = run.step_in_epoch,
                     .steps_per_epoch = run.steps_per_epoch,
                     .epoch_seconds_left = in_thousandths(step_s * static_cast<double>(left)),
                     .seconds_left = in_thousandths(step_s * static_cast<double>(left + later))};
  return record;
}

void ProgressBar::draw(const TrainingRecord& record, bool is_last) const {
  if (options_.format == LogFormat::kJson) return print_(json_line(record));
  if (!is_terminal_) return print_(progress_text(record, options_.row_name, 0));
  // One column stays free: a full line would wrap.
  const auto text = progress_text(record, options_.row_name, terminal_width() - 1);
  std::fprintf(stdout, "\r%s\033[K%s", text.c_str(), is_last ? "\n" : "");
  std::fflush(stdout);
}

void ProgressBar::print_evaluations(const RunContext& run) {
  const EvaluationResult& latest = run.model.latest_evaluation();
  if (std::exchange(num_evaluations_, latest.number) == latest.number) return;
  if (options_.format != LogFormat::kJson) return;
  TrainingRecord record = record_of(run, "evaluation");
  record.step = latest.step;
  for (const auto& [name, value] : latest.metrics) {
    if (!name.empty()) record.metrics[name] = value;
  }
  if (!record.metrics.empty()) print_(json_line(record));
}

void ProgressBar::epoch_end(RunContext& run) {
  if (run.model.context().rank() != 0) return;
  if (is_terminal_) draw(progress_of(run), true);
  if (options_.format == LogFormat::kJson) {
    TrainingRecord record = progress_of(run);
    record.kind = "epoch";
    if (num_losses_ > 0) record.loss = loss_sum_ / static_cast<double>(num_losses_);
    print_(json_line(record));
  }
  print_evaluations(run);
}

void ProgressBar::end(RunContext& run) {
  if (run.model.context().rank() == 0) print_evaluations(run);
}

}  // namespace tessera::train
