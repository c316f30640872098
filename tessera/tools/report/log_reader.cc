#include "tessera/tools/report/log_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "tessera/base/json/bounded_json.h"
#include "tessera/tools/report/record_members.h"

namespace tessera::tools {
namespace {

constexpr int64_t kBytesAtOnce = int64_t{1} << 20;
// A record of a training has some hundred bytes, one of a run as many as its command line.
constexpr size_t kMaxLineBytes = size_t{1} << 20;
constexpr size_t kMostProblems = 5;
constexpr size_t kMostMetricsOfRecord = 64;

// Of a member's value; also of the words for numbers that are not finite.
std::optional<double> number_of_member(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<double> number_in(const nlohmann::json& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() ? std::nullopt : number_of_member(*found);
}

bool is_read(std::string_view kind) {
  return kind == "step" || kind == "epoch" || kind == "evaluation" || kind == "run" || kind == "end";
}

// Whether a line that has no end may be the beginning of a record, or of a table's first line.
bool may_be_begun(std::string_view line, const std::vector<std::string>& columns) {
  constexpr std::string_view kRecord = "{\"kind\"";
  constexpr std::string_view kTable = "kind,";
  const auto begins = [&](std::string_view whole) { return line.starts_with(whole.substr(0, line.size())); };
  return !columns.empty() || begins(kRecord) || begins(kTable);
}

// A count from 0 on; nothing of anything else.
std::optional<int64_t> count_of_field(const std::string& text) {
  const auto value = train::whole_number<int64_t>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace

LogReader::LogReader(FileSystem& files, const std::string& path) {
  files.open(path);  // throws for anything but a file
  file_ = files.open_ranges(path);
  size_bytes_ = files.size_bytes(path);
}

std::optional<LogReader::RawLine> LogReader::next_line() {
  for (;;) {
    const size_t end = buffer_.find('\n', scanned_);
    if (end != std::string::npos) {
      RawLine line{std::string_view(buffer_).substr(begin_, end - begin_)};
      line.is_too_long = std::exchange(is_long_, false) || line.text.size() > kMaxLineBytes;
      begin_ = scanned_ = end + 1;
      return line;
    }
    if (buffer_.size() - begin_ > kMaxLineBytes) {
      is_long_ = true;
      begin_ = buffer_.size();
    }
    buffer_.erase(0, std::exchange(begin_, 0));
    scanned_ = buffer_.size();
    if (offset_ == size_bytes_) {
      if (buffer_.empty() && !is_long_) return std::nullopt;
      begin_ = scanned_ = buffer_.size();
      return RawLine{buffer_, std::exchange(is_long_, false), false};
    }
    const int64_t size = std::min(kBytesAtOnce, size_bytes_ - offset_);
    buffer_.resize(scanned_ + static_cast<size_t>(size));
    file_->read(offset_, std::as_writable_bytes(std::span(buffer_.data() + scanned_, static_cast<size_t>(size))));
    offset_ += size;
  }
}

std::optional<LogRecord> LogReader::next() {
  while (const auto line = next_line()) {
    ++damage_.num_lines;
    std::string problem = line->is_too_long ? fmt::format("longer than {}", format_bytes(kMaxLineBytes)) : "";
    std::optional<LogRecord> record;
    if (problem.empty()) {
      // A table begins with the names of its columns.
      if (damage_.num_lines == 1 && take_columns(line->text)) continue;
      record = columns_.empty() ? read_json(line->text, problem) : read_row(line->text, problem);
    }
    if (record && is_read(record->kind)) return record;
    if (record) {
      ++damage_.num_other;
    } else if (!line->has_end && may_be_begun(line->text, columns_)) {
      damage_.has_cut_line = true;
    } else {
      ++damage_.num_damaged;
      if (damage_.first.size() < kMostProblems) {
        damage_.first.push_back(fmt::format("line {}: {}", damage_.num_lines, problem));
      }
    }
  }
  return std::nullopt;
}

std::optional<LogRecord> LogReader::read_json(std::string_view line, std::string& problem) {
  const auto json = parse_json_or_discard<nlohmann::json>(line, {.name = "record", .leaves_out_deeper = true});
  if (!json.is_object()) {
    problem = "no JSON object";
    return std::nullopt;
  }
  LogRecord record;
  record.kind = text_in(json, "kind");
  if (!record.kind.empty() && !is_read(record.kind)) return record;
  const auto step = count_in(json, "step");
  if (record.kind.empty() || !step) {
    problem = "no kind, or no step";
    return std::nullopt;
  }
  record.step = *step;
  record.epoch = count_in(json, "epoch").value_or(0);
  record.time = text_in(json, "time");
  record.seconds = number_in(json, "seconds");
  record.loss = number_in(json, "loss");
  record.learning_rate = number_in(json, "learning_rate");
  record.rows_per_second = number_in(json, "rows_per_second");
  record.resident_bytes = number_in(json, "resident_bytes");
  record.arena_bytes = number_in(json, "arena_bytes");
  record.ended = text_in(json, "ended");
  record.signal = text_in(json, "signal");
  record.reason = text_in(json, "reason");
  if (record.kind == "run") record.line = line;
  if (const auto metrics = json.find("metrics"); metrics != json.end() && metrics->is_object()) {
    for (const auto& [name, value] : metrics->items()) {
      const auto number = number_of_member(value);
      if (number && record.metrics.size() < kMostMetricsOfRecord) record.metrics.emplace_back(name, *number);
    }
  }
  return record;
}

bool LogReader::take_columns(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);  // spreadsheets write that mark
  auto names = train::csv_fields(line);
  const auto has = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  if (!has("kind") || !has("step")) return false;
  columns_ = std::move(names);
  return true;
}

std::optional<LogRecord> LogReader::read_row(std::string_view line, std::string& problem) {
  const auto fields = train::csv_fields(line);
  if (fields.size() != columns_.size()) {
    problem = fmt::format("{} fields instead of {}", fields.size(), columns_.size());
    return std::nullopt;
  }
  LogRecord record;
  std::optional<int64_t> step;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = columns_[i];
    const std::string& field = fields[i];
    if (name == "kind") {
      record.kind = field;
    } else if (name == "time") {
      record.time = field;
    } else if (name == "step") {
      step = count_of_field(field);
    } else if (name == "epoch") {
      record.epoch = count_of_field(field).value_or(0);
    } else if (name == "seconds") {
      record.seconds = train::whole_number<double>(field);
    } else if (name == "loss") {
      record.loss = train::whole_number<double>(field);
    } else if (name == "learning_rate") {
      record.learning_rate = train::whole_number<double>(field);
    } else if (name == "rows_per_second") {
      record.rows_per_second = train::whole_number<double>(field);
    } else if (name == "resident_bytes") {
      record.resident_bytes = train::whole_number<double>(field);
    } else if (name == "arena_bytes") {
      record.arena_bytes = train::whole_number<double>(field);
    } else if (name.starts_with(train::kMetricColumn)) {
      const auto number = train::whole_number<double>(field);
      if (number && record.metrics.size() < kMostMetricsOfRecord) {
        record.metrics.emplace_back(name.substr(train::kMetricColumn.size()), *number);
      }
    }
  }
  if (!step || record.kind.empty()) {
    problem = "no kind, or no step";
    return std::nullopt;
  }
  record.step = *step;
  return record;
}

std::string find_log(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) throw InvalidArgument("{}: there is no such file or folder", path);
  if (!files.is_directory(path)) return path;
  const auto names = files.list(path);
  for (const char* usual : {"log.jsonl", "log.csv"}) {
    if (std::ranges::find(names, usual) != names.end()) return join_path(path, usual);
  }
  for (const char* ending : {".jsonl", ".csv"}) {
    std::vector<std::string> found;
    std::ranges::copy_if(names, std::back_inserter(found), [&](const auto& name) { return name.ends_with(ending); });
    if (found.size() == 1) return join_path(path, found[0]);
    if (found.size() > 1) {
      constexpr size_t kMostNamed = 5;
      const std::string more = found.size() > kMostNamed ? fmt::format(" and {} more", found.size() - kMostNamed) : "";
      found.resize(std::min(found.size(), kMostNamed));
      throw InvalidArgument("{}: the folder has several logs, {}{}: name one of them", path, fmt::join(found, ", "),
                            more);
    }
  }
  return "";
}

}  // namespace tessera::tools
