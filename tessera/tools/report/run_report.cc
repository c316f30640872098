#include "tessera/tools/report/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "tessera/tools/timeline/operator_classes.h"
#include "tessera/tools/timeline/timeline_text.h"

namespace tessera::tools {
namespace {

constexpr size_t kMostEpochs = 500;
constexpr size_t kMostMetrics = 24;
constexpr size_t kMostRuns = 20;
constexpr size_t kMostOutputs = 64;
constexpr int64_t kOutputTailBytes = 4096;
constexpr size_t kMostLastLines = 5;
constexpr size_t kMostBytesOfReason = 2000;

// Text of a log as part of a line.
std::string in_line(const std::string& text) {
  std::string line = shortened(text, kMostBytesOfReason);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

// Puts the records of a log together, one after the other.
class RecordCollector {
 public:
  explicit RecordCollector(RunReport& report) : report_(report) {}

  void take(const LogRecord& record) {
    ++report_.num_records;
    if (report_.first_time.empty()) report_.first_time = record.time;
    if (!record.time.empty()) report_.last_time = record.time;
    if (record.seconds && std::isfinite(*record.seconds)) report_.seconds = record.seconds;
    report_.ended = record.kind == "end" ? record.ended : "";
    report_.signal = record.kind == "end" ? record.signal : "";
    report_.reason = record.kind == "end" ? in_line(record.reason) : "";
    if (record.kind == "run") return take_run(record);
    if (record.kind == "end") return;
    const bool trains = record.kind != "evaluation";
    if (trains && record.step < report_.last_step) go_back_to(record.step);
    report_.last_step = trains ? record.step : std::max(report_.last_step, record.step);
    report_.last_epoch = trains ? record.epoch : std::max(report_.last_epoch, record.epoch);
    if (record.kind == "step") take_step(record);
    if (record.kind == "epoch") take_epoch(record);
    if (record.kind == "evaluation") take_evaluation(record);
  }

  // Where no step was written down, epochs say what steps would.
  void finish() {
    if (report_.num_step_records > 0) return;
    report_.loss = epoch_loss_;
    report_.learning_rate = epoch_rate_;
    report_.rows_per_second = epoch_speed_;
    report_.speed = epoch_median_;
  }

 private:
  void take_run(const LogRecord& record) {
    auto facts = parse_run_facts(record.line);
    if (!facts) return;
    ++report_.num_runs;
    if (report_.runs.size() == kMostRuns) report_.runs.erase(report_.runs.begin() + 1);
    report_.runs.push_back(std::move(*facts));
  }

  void go_back_to(int64_t step) {
    ++report_.num_returns;
    for (Curve* curve : {&report_.loss, &report_.learning_rate, &report_.rows_per_second, &report_.resident_bytes,
                         &report_.arena_bytes, &epoch_loss_, &epoch_rate_, &epoch_speed_}) {
      curve->go_back_to(step);
    }
    for (auto& [name, curve] : report_.metrics) curve.go_back_to(step);
    while (!report_.epochs.empty() && report_.epochs.back().step >= step) report_.epochs.pop_back();
    evaluated_.clear();
  }

  static void add(Curve& curve, int64_t step, const std::optional<double>& value) {
    if (value) curve.add(step, *value);
  }

  void take_step(const LogRecord& record) {
    ++report_.num_step_records;
    add(report_.loss, record.step, record.loss);
    add(report_.learning_rate, record.step, record.learning_rate);
    add(report_.rows_per_second, record.step, record.rows_per_second);
    if (record.rows_per_second) report_.speed.add(*record.rows_per_second);
    take_memory(record);
  }

  void take_memory(const LogRecord& record) {
    add(report_.resident_bytes, record.step, record.resident_bytes);
    add(report_.arena_bytes, record.step, record.arena_bytes);
  }

  void take_epoch(const LogRecord& record) {
    add(epoch_loss_, record.step, record.loss);
    add(epoch_rate_, record.step, record.learning_rate);
    add(epoch_speed_, record.step, record.rows_per_second);
    if (record.rows_per_second) epoch_median_.add(*record.rows_per_second);
    take_memory(record);
    if (report_.epochs.size() == kMostEpochs) {
      report_.epochs.pop_front();
      ++report_.num_epochs_left_out;
    }
    report_.epochs.push_back({record.epoch, record.step, record.loss, record.learning_rate, record.rows_per_second,
                              record.seconds, evaluated_step_ == record.step ? evaluated_ : Metrics()});
  }

  void take_evaluation(const LogRecord& record) {
    if (evaluated_step_ != record.step) evaluated_.clear();
    evaluated_step_ = record.step;
    for (const auto& [name, value] : record.metrics) {
      if (!report_.metrics.contains(name) && report_.metrics.size() == kMostMetrics) {
        ++report_.num_metrics_left_out;
        continue;
      }
      report_.metrics[name].add(record.step, value);
      evaluated_[name] = value;
      if (!report_.epochs.empty() && report_.epochs.back().step == record.step) {
        report_.epochs.back().metrics[name] = value;
      }
    }
  }

  using Metrics = std::map<std::string, double>;
  RunReport& report_;
  Curve epoch_loss_;
  Curve epoch_rate_;
  Curve epoch_speed_;
  MedianSample epoch_median_;
  int64_t evaluated_step_ = -1;
  Metrics evaluated_;  // at that step
};

void read_log(FileSystem& files, RunReport& report) {
  LogReader reader(files, report.log_path);
  RecordCollector collector(report);
  while (const auto record = reader.next()) collector.take(*record);
  collector.finish();
  report.damage = reader.damage();
  const auto& damage = report.damage;
  if (report.num_records > 0 || damage.num_damaged + damage.num_other == 0) return;
  throw InvalidArgument("{}: none of its {} is a record of a training{}; name a log of JsonLog or CsvLog",
                        report.log_path, plural(damage.num_lines, "line"),
                        damage.first.empty() ? "" : ": " + damage.first[0]);
}

// Of "rank.12" 12; nothing of another name.
std::optional<int> rank_of_output(const std::string& name) {
  constexpr std::string_view kPrefix = "rank.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int rank = 0;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + kPrefix.size(), end, rank);
  return error == std::errc() && last == end && rank >= 0 ? std::optional(rank) : std::nullopt;
}

PrintedTail read_output(FileSystem& files, const std::string& directory, const std::string& name) {
  const std::string path = join_path(directory, name);
  PrintedTail output{.name = name};
  try {
    files.open(path);  // throws for anything but a file
    output.size_bytes = files.size_bytes(path);
    const int64_t size = std::min(output.size_bytes, kOutputTailBytes);
    std::string tail(static_cast<size_t>(size), ' ');
    if (size > 0) {
      files.open_ranges(path)->read(output.size_bytes - size, std::as_writable_bytes(std::span(tail)));
    }
    std::vector<std::string> lines;
    for (const auto line : split(tail, '\n')) {
      if (!trim(line).empty()) lines.emplace_back(line);
    }
    const size_t num_left_out = lines.size() - std::min(lines.size(), kMostLastLines);
    output.last_lines.assign(lines.begin() + static_cast<std::ptrdiff_t>(num_left_out), lines.end());
  } catch (const IoError& error) {
    output.last_lines = {fmt::format("it cannot be read: {}", error.what())};
  }
  return output;
}

void read_outputs(FileSystem& files, const std::string& directory, RunReport& report) {
  std::map<int, std::string> names;
  for (const auto& name : files.list(directory)) {
    if (const auto rank = rank_of_output(name)) names.emplace(*rank, name);
  }
  for (const auto& [rank, name] : names) {
    if (report.outputs.size() == kMostOutputs) {
      report.num_outputs_left_out = static_cast<int64_t>(names.size() - kMostOutputs);
      break;
    }
    report.outputs.push_back(read_output(files, directory, name));
  }
}

void read_failure(FileSystem& files, const std::string& directory, bool is_named, RunReport& report) {
  if (!is_named && !files.is_directory(directory)) return;
  try {
    const auto job = cluster::read_job_report(files, directory);
    report.verdict = cluster::find_verdict(job);
    report.why = cluster::why_text(job);
  } catch (const Error& error) {
    if (is_named) throw;
    report.failure_problem = error.what();
  }
}

void read_trace(FileSystem& files, const std::string& directory, const ReportSources& sources, RunReport& report) {
  const bool is_named = !sources.trace.empty();
  const std::string path = is_named ? sources.trace : join_path(directory, "trace.json");
  if (!is_named && !files.exists(path)) {
    if (sources.profile.empty()) return;
    throw UsageError("--profile has no effect here: it goes with a trace, --trace FILE or trace.json beside the log");
  }
  report.trace_path = path;
  try {
    report.trace = summary_of(files, path, sources.profile);
  } catch (const Error& error) {
    if (is_named || !sources.profile.empty()) throw;
    report.trace_problem = error.what();
  }
}

// "matmul 62.1 % of a step, at 45 % of its limit; relu 5.0 % of a step".
std::string operators_line(const timeline::TimelineSummary& trace) {
  constexpr size_t most_named = 3;
  std::string text;
  const auto classes = operator_classes(trace);
  for (size_t i = 0; i < std::min(most_named, classes.size()); ++i) {
    text +=
        fmt::format("{}{} {:.1f} % of a step", i == 0 ? "" : "; ", printable(classes[i].name), 100 * classes[i].share);
    if (const auto share = share_of_limit(classes[i])) text += fmt::format(", at {:.0f} % of its limit", 100 * *share);
  }
  return text;
}

std::string at_step(const CurvePoint& point) {
  return fmt::format("{} at step {}", number_text(point.value), point.step);
}

// "last X at step N, best Y at step M".
std::string extremes_text(const Curve& curve, const char* least, const char* greatest) {
  std::string text = "last " + at_step(*curve.last());
  if (const auto point = curve.least(); point && least != nullptr)
    text += fmt::format(", {} {}", least, at_step(*point));
  if (const auto point = curve.greatest(); point && greatest != nullptr) {
    text += fmt::format(", {} {}", greatest, at_step(*point));
  }
  return text;
}

// A size of a log, which may be any number.
std::string size_text(double bytes) {
  return bytes >= 0 && bytes < 0x1p62 ? format_bytes(static_cast<int64_t>(bytes)) : number_text(bytes) + " B";
}

std::string position_text(const RunReport& report) {
  const int64_t num_epochs = report.runs.empty() ? 0 : report.runs.back().num_epochs;
  const std::string of = num_epochs > 0 ? fmt::format(" of {}", num_epochs) : "";
  return fmt::format("step {} in epoch {}{}", report.last_step, report.last_epoch, of);
}

}  // namespace

RunReport read_run(FileSystem& files, const ReportSources& sources) {
  RunReport report{.path = sources.path, .log_path = find_log(files, sources.path)};
  const std::string directory = files.is_directory(sources.path) ? sources.path : parent_path(sources.path);
  if (!report.log_path.empty()) read_log(files, report);
  read_outputs(files, directory, report);
  read_trace(files, directory, sources, report);
  const bool names_failure = !sources.failure.empty();
  read_failure(files, names_failure ? sources.failure : join_path(directory, "report"), names_failure, report);
  if (report.log_path.empty() && report.outputs.empty() && !report.verdict) {
    throw InvalidArgument(
        "{}: the folder has no log of a training: no log.jsonl or log.csv, and no rank.N of a launcher; give the "
        "training JsonLog(\"{}\")",
        sources.path, join_path(sources.path, "log.jsonl"));
  }
  if (!sources.checkpoints.empty()) {
    report.shows_checkpoints = true;
    report.checkpoints = checkpoint::list_checkpoints(files, sources.checkpoints);
    std::erase_if(report.checkpoints, [](const checkpoint::ListedFile& file) { return file.is_strategy; });
    const auto step_of = [](const checkpoint::ListedFile& file) { return file.info ? file.info->step : -1; };
    std::ranges::stable_sort(report.checkpoints, {}, step_of);
  }
  return report;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{:.6g}", value);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return number_text(seconds) + " s";
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<int64_t>(std::round(seconds));
  const std::string minutes = fmt::format("{} min {} s", whole / 60 % 60, whole % 60);
  return whole < 3600 ? minutes : fmt::format("{} h {}", whole / 3600, minutes);
}

std::string ending_text(const RunReport& report) {
  const bool has_failure = report.verdict && report.verdict->kind != "none";
  const std::string failure = has_failure ? "; " + printable(report.verdict->text) : "";
  if (report.log_path.empty()) {
    return has_failure ? printable(report.verdict->text) : "there is no log of the training, so that is not known";
  }
  if (report.num_records == 0) return "the log has no records yet" + failure;
  const std::string position = position_text(report);
  if (report.ended == "completed") return "it completed, after " + position;
  if (report.ended == "stopped" && !report.signal.empty()) {
    return fmt::format("{} stopped it after {}{}", printable(report.signal), position, failure);
  }
  if (report.ended == "stopped") {
    return fmt::format("it was stopped by a callback or a signal, after {}{}", position, failure);
  }
  if (report.ended == "failed" && !has_failure && !report.reason.empty()) {
    return fmt::format("it failed, after {}: {}", position, report.reason);
  }
  if (report.ended == "failed") return fmt::format("it failed, after {}{}", position, failure);
  if (has_failure) return fmt::format("it failed, after {}{}", position, failure);
  if (report.num_runs == 0) return fmt::format("the log does not say it; its last record is of {}", position);
  return fmt::format("its log does not end: it still trains, or its process was killed, after {}", position);
}

std::vector<Headline> headlines(const RunReport& report) {
  std::vector<Headline> lines{{"end", ending_text(report)}};
  if (report.num_records > 0) {
    lines.push_back({"steps", fmt::format("{} in {}", report.last_step, plural(report.last_epoch, "epoch"))});
  }
  if (!report.loss.empty()) {
    const std::string of_epochs = report.num_step_records == 0 ? ", means of epochs" : "";
    lines.push_back({"loss", extremes_text(report.loss, "best", nullptr) + of_epochs});
  }
  for (const auto& [name, curve] : report.metrics) {
    if (!curve.empty()) lines.push_back({"evaluated " + printable(name), extremes_text(curve, "least", "greatest")});
  }
  if (const auto median = report.speed.median()) {
    lines.push_back({"speed", fmt::format("{} rows/s, the median", number_text(*median))});
  }
  if (report.seconds) {
    std::string text = duration_text(*report.seconds) + " of training";
    if (!report.first_time.empty()) {
      text += fmt::format(", written from {} to {}", printable(report.first_time), printable(report.last_time));
    }
    lines.push_back({"time", text});
  }
  if (const auto most = report.resident_bytes.greatest()) {
    std::string text = fmt::format("{} of the process at most", size_text(most->value));
    if (const auto arena = report.arena_bytes.greatest()) {
      text += fmt::format(", {} for values and a step", size_text(arena->value));
    }
    lines.push_back({"memory", text});
  }
  if (const MemoryFacts* const memory = report.step_memory()) {
    lines.push_back({"memory of a step", printable(memory_line(*memory))});
  }
  if (const PlanFacts* const plan = report.plan()) lines.push_back({"plan", printable(plan_line(*plan))});
  if (report.trace && !report.trace->operators.empty()) lines.push_back({"operators", operators_line(*report.trace)});
  return lines;
}

std::vector<std::string> log_notes(const RunReport& report) {
  std::vector<std::string> notes;
  const auto& damage = report.damage;
  const int64_t num_bad = report.loss.num_non_finite();
  if (num_bad > 0) {
    notes.push_back(fmt::format("The loss is not finite in {} of {} records, first at step {}.", num_bad,
                                report.loss.num_values(), *report.loss.first_non_finite()));
  }
  if (damage.num_damaged > 0) {
    notes.push_back(fmt::format(
        "{} of {} {}: {}{}.", damage.num_damaged, plural(damage.num_lines, "line"),
        damage.num_damaged == 1 ? "is left out, because it is no record" : "are left out, because they are no records",
        fmt::join(damage.first, "; "), damage.num_damaged > std::ssize(damage.first) ? "; and so on" : ""));
  }
  if (damage.num_other > 0) {
    notes.push_back(fmt::format("{} of other kinds {} left out.", plural(damage.num_other, "record"),
                                damage.num_other == 1 ? "is" : "are"));
  }
  if (damage.has_cut_line) notes.emplace_back("The last line is cut: it was being written, or its process was killed.");
  if (report.num_returns > 0) {
    notes.push_back(fmt::format(
        "The log goes back to an earlier step {}: these steps were made again, and the later records count.",
        report.num_returns == 1 ? "once" : fmt::format("{} times", report.num_returns)));
  }
  if (report.num_runs > 1) {
    notes.push_back(fmt::format("The training was begun or continued {} times in this log.", report.num_runs));
  }
  if (report.num_metrics_left_out > 0) {
    notes.push_back(fmt::format("{} of metrics beyond the first {} names are left out.",
                                plural(report.num_metrics_left_out, "value"), kMostMetrics));
  }
  return notes;
}

}  // namespace tessera::tools
