#include "tessera/train/logs/json_log.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/train/logs/run_record.h"
#include "tessera/train/model.h"

namespace tessera::train {

JsonLog::JsonLog(std::string file, LogOptions options)
    : TrainingLog("JsonLog", std::move(options)), path_(std::move(file)) {
  if (path_.empty()) throw InvalidArgument("JsonLog: the file has no name");
}

namespace {

bool is_json_record(const std::string& line) {
  const auto record = nlohmann::json::parse(line, nullptr, false);
  return record.is_object() && record.contains("kind") && record.contains("step") && record["step"].is_number_integer();
}

}  // namespace

double JsonLog::open(RunContext& run, bool goes_on) {
  FileSystem& files = run.model.context().file_system();
  if (!goes_on) move_aside(files, path_, "JsonLog", is_json_record);
  double seconds = 0;
  std::vector<std::string> kept;
  const auto lines = whole_lines(files, path_);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto record = nlohmann::json::parse(lines[i], nullptr, false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) {
      throw InvalidArgument("{}: line {}: no record of a training; give JsonLog a file of its own", path_, i + 1);
    }
    if (record["step"].get<int64_t>() > run.step) continue;
    kept.push_back(lines[i]);
    if (record.contains("seconds") && record["seconds"].is_number()) seconds = record["seconds"].get<double>();
  }
  if (kept.size() < lines.size()) {
    log_info("{}: {} records of steps after step {} are dropped: the training goes on from there", path_,
             lines.size() - kept.size(), run.step);
  }
  file_.emplace(files, path_, kept);
  file_->append(json_line(run_record_of(run)));
  return seconds;
}

void JsonLog::write(const TrainingRecord& record) { file_->append(json_line(record)); }

void JsonLog::close(RunContext& run) {
  TrainingRecord record = record_now(run, "end");
  const bool is_stopped = run.was_told_to_end || (!run.has_failed && run.stop_requested);
  record.ended = is_stopped ? "stopped" : run.has_failed ? "failed" : "completed";
  write(record);
  file_->close();
}

}  // namespace tessera::train
