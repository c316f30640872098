#include "tessera/train/logs/json_log.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/train/logs/run_record.h"
#include "tessera/train/model.h"

namespace tessera::train {

JsonLog::JsonLog(std::string file, LogOptions options)
    : TrainingLog("JsonLog", std::move(options)), path_(std::move(file)) {
  if (path_.empty()) throw InvalidArgument("JsonLog: the file has no name");
}

namespace {

// What is asked of a record stands in its first level.
nlohmann::json record_of(const std::string& line) {
  return parse_json_or_discard<nlohmann::json>(line, {.name = "record", .leaves_out_deeper = true});
}

bool is_json_record(const std::string& line) {
  const auto record = record_of(line);
  if (!record.is_object() || !record.contains("kind") || !record.contains("time")) return false;
  const auto is_whole = [&](const char* name) { return record.contains(name) && record[name].is_number_integer(); };
  static const std::set<std::string> kKinds{"run", "step", "epoch", "evaluation", "end"};
  const auto& kind = record["kind"];
  return kind.is_string() && kKinds.contains(kind.get<std::string>()) && record["time"].is_string() &&
         is_whole("step") && is_whole("epoch");
}

}  // namespace

double JsonLog::open(RunContext& run, Beginning beginning) {
  file_.reset();
  kept_.clear();
  is_new_ = beginning == Beginning::kNew;
  const bool takes_over = beginning == Beginning::kGoesOnInItsJob;
  file_ = std::make_unique<LineFile>(run.model.context().file_system(), path_,
                                     LineFileOptions{.who = "JsonLog", .takes_over = takes_over});
  double seconds = 0;
  std::vector<std::string> lines;
  if (is_new_) {
    file_->require_first_line(is_json_record);
  } else {
    lines = file_->lines();
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto record = record_of(lines[i]);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) {
      throw InvalidArgument("{}: line {}: no record of a training; give JsonLog a file of its own", path_, i + 1);
    }
    if (record["step"].get<int64_t>() > run.step) continue;
    kept_.push_back(lines[i]);
    if (record.contains("seconds") && record["seconds"].is_number()) seconds = record["seconds"].get<double>();
  }
  if (kept_.size() < lines.size()) {
    log_info("{}: {} records of steps after step {} are dropped: the training goes on from there", path_,
             lines.size() - kept_.size(), run.step);
  }
  kept_.push_back(json_line(run_record_of(run)));
  return seconds;
}

void JsonLog::start(RunContext& run) {
  file_->replace(kept_, is_new_ ? LineFile::Older::kMovesAside : LineFile::Older::kGoes);
  kept_ = {};
  last_line_ = std::make_unique<LastLine>(file_->file_path());
  set_last_line(run);
}

namespace {

void append_line(std::string_view line, LineFile& file, LastLine& last_line) {
  const LastLine::Writing writing(last_line);
  file.append(line);
}

constexpr size_t kMostBytesOfReason = 2000;

// Of an exception of Python's the words are a traceback, of which the last part names it: the first line behind those
// of the frames, which are indented, and what follows.
std::string_view without_traceback(std::string_view words) {
  if (!words.starts_with("Traceback (most recent call last):")) return words;
  const auto is_of_frames = [](std::string_view rest) { return rest.starts_with(' ') || rest.starts_with('\n'); };
  size_t begin = words.find('\n');
  while (begin != std::string_view::npos && is_of_frames(words.substr(begin + 1))) begin = words.find('\n', begin + 1);
  return begin == std::string_view::npos || begin + 1 == words.size() ? words : words.substr(begin + 1);
}

// Why the training has failed: callbacks are ended while the exception that ends it is handled. "" of one that has no
// words.
std::string failure_words() {
  const std::exception_ptr failure = std::current_exception();
  if (failure == nullptr) return "";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    const std::string_view words = without_traceback(error.what());
    if (words.size() <= kMostBytesOfReason) return std::string(trim(words));
    size_t end = kMostBytesOfReason;
    while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xC0U) == 0x80U) --end;  // within a character
    return std::string(words.substr(0, end)) + " ...";
  } catch (...) {
    return "";
  }
}

// The record of an end with the reason as its last member.
std::string with_reason(const std::string& line, const std::string& reason) {
  if (reason.empty()) return line;
  const std::string text = nlohmann::json(reason).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return fmt::format("{},\"reason\":{}}}", line.substr(0, line.size() - 1), text);
}

}  // namespace

void JsonLog::write(const TrainingRecord& record) { append_line(json_line(record), *file_, *last_line_); }

void JsonLog::after_step(RunContext& run, int64_t /*previous_step*/) {
  if (is_open() && last_line_ != nullptr) set_last_line(run);
}

void JsonLog::set_last_line(RunContext& run) {
  constexpr std::string_view kSignal = "SIGNAL";
  TrainingRecord record = record_now(run, "end");
  record.ended = "stopped";
  record.signal = kSignal;
  const std::string line = json_line(record);
  const std::string time = utc_time(record.wall_ms);
  const size_t time_at = line.find(time);
  const size_t signal_at = line.rfind(kSignal);
  const std::string_view text(line);
  last_line_->set(text.substr(0, time_at), text.substr(time_at + time.size(), signal_at - time_at - time.size()),
                  text.substr(signal_at + kSignal.size()));
}

void JsonLog::close(RunContext& run) {
  TrainingRecord record = record_now(run, "end");
  const bool is_stopped = run.was_told_to_end || (!run.has_failed && run.stop_requested);
  record.ended = is_stopped ? "stopped" : run.has_failed ? "failed" : "completed";
  record.signal = run.signal;
  const std::string reason = record.ended == "failed" ? failure_words() : "";
  append_line(with_reason(json_line(record), reason), *file_, *last_line_);
  last_line_.reset();  // there is an end now
  file_->close();
}

void JsonLog::let_go() {
  last_line_.reset();
  file_.reset();
}

}  // namespace tessera::train
