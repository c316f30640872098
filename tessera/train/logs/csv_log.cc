#include "tessera/train/logs/csv_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/train/logs/csv_row.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

const std::vector<std::string>& usual_columns() {
  static const std::vector<std::string> columns{"kind",           "time",       "seconds",       "epoch",
                                                "step",           "loss",       "learning_rate", "rows_per_second",
                                                "resident_bytes", "arena_bytes"};
  return columns;
}

bool has_usual_columns(const std::string& line) {
  const auto row = csv_fields(line);
  return std::ranges::all_of(usual_columns(),
                             [&](const auto& name) { return std::ranges::find(row, name) != row.end(); });
}

std::string metric_column(const std::string& name) { return std::string(kMetricColumn) + name; }

}  // namespace

CsvLog::CsvLog(std::string file, LogOptions options)
    : TrainingLog("CsvLog", std::move(options)), path_(std::move(file)) {
  if (path_.empty()) throw InvalidArgument("CsvLog: the file has no name");
}

bool CsvLog::has_column(const std::string& name) const { return std::ranges::find(columns_, name) != columns_.end(); }

double CsvLog::open(RunContext& run, Beginning beginning) {
  file_.reset();
  kept_.clear();
  is_new_ = beginning == Beginning::kNew;
  const bool takes_over = beginning == Beginning::kGoesOnInItsJob;
  file_ = std::make_unique<LineFile>(run.model.context().file_system(), path_,
                                     LineFileOptions{.who = "CsvLog", .takes_over = takes_over});
  std::vector<std::string> lines;
  if (is_new_) {
    file_->require_first_line(has_usual_columns);
  } else {
    lines = file_->lines();
  }
  columns_ = lines.empty() ? usual_columns() : csv_fields(lines[0]);
  for (const auto& name : usual_columns()) {
    if (has_column(name)) continue;
    throw InvalidArgument("{}: line 1 has no column {}: it is no log of a training; give CsvLog a file of its own",
                          path_, name);
  }
  const auto place = [&](const char* name) {
    return static_cast<size_t>(std::ranges::find(columns_, name) - columns_.begin());
  };
  const size_t step_at = place("step");
  const size_t seconds_at = place("seconds");
  double seconds = 0;
  kept_ = {csv_line(columns_)};
  for (size_t i = 1; i < lines.size(); ++i) {
    const Row row = csv_fields(lines[i]);
    const auto step = row.size() == columns_.size() ? whole_number<int64_t>(row[step_at]) : std::nullopt;
    if (!step) {
      throw InvalidArgument("{}: line {}: no row of the {} columns with a step; give CsvLog a file of its own", path_,
                            i + 1, columns_.size());
    }
    if (*step > run.step) continue;
    kept_.push_back(lines[i]);
    seconds = whole_number<double>(row[seconds_at]).value_or(seconds);
  }
  if (kept_.size() < lines.size()) {
    log_info("{}: {} rows of steps after step {} are dropped: the training goes on from there", path_,
             lines.size() - kept_.size(), run.step);
  }
  std::vector<std::string> metrics;
  for (const auto& metric : run.model.options().metrics) {
    if (!metric->name().empty()) metrics.push_back(metric_column(metric->name()));
  }
  add_columns(metrics, kept_);
  return seconds;
}

void CsvLog::start(RunContext&) {
  file_->replace(kept_, is_new_ ? LineFile::Older::kMovesAside : LineFile::Older::kGoes);
  kept_ = {};
}

bool CsvLog::add_columns(const std::vector<std::string>& names, std::vector<std::string>& lines) {
  std::string added;
  for (const auto& name : names) {
    if (has_column(name)) continue;
    columns_.push_back(name);
    added += ",";
  }
  if (added.empty()) return false;
  for (auto& line : lines) line = csv_line(csv_fields(line)) + added;
  if (lines.empty()) lines.emplace_back();  // somebody has emptied the file
  lines[0] = csv_line(columns_);
  return true;
}

void CsvLog::write(const TrainingRecord& record) {
  const auto number = [](const std::optional<double>& value) { return value ? shortest_number(*value) : ""; };
  std::map<std::string, std::string> fields{{"kind", record.kind},
                                            {"time", utc_time(record.wall_ms)},
                                            {"seconds", shortest_number(record.seconds)},
                                            {"epoch", std::to_string(record.epoch)},
                                            {"step", std::to_string(record.step)},
                                            {"loss", number(record.loss)},
                                            {"learning_rate", number(record.learning_rate)},
                                            {"rows_per_second", number(record.rows_per_second)},
                                            {"resident_bytes", std::to_string(record.resident_bytes)},
                                            {"arena_bytes", std::to_string(record.arena_bytes)}};
  std::vector<std::string> metrics;
  for (const auto& [name, value] : record.metrics) {
    metrics.push_back(metric_column(name));
    fields[metrics.back()] = shortest_number(value);
  }
  if (!std::ranges::all_of(metrics, [&](const auto& name) { return has_column(name); })) {
    auto lines = file_->lines();
    if (add_columns(metrics, lines)) file_->replace(lines);
  }
  Row row;
  for (const auto& column : columns_) row.push_back(fields[column]);
  file_->append(csv_line(row));
}

void CsvLog::close(RunContext&) { file_->close(); }

}  // namespace tessera::train
