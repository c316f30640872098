#include "tessera/train/logs/training_record.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

// The members of an object, one after the other.
class JsonMembers {
 public:
  void add(std::string_view name, const std::string& value) {
    text_ += fmt::format("{}{}:{}", text_.empty() ? "" : ",", quoted(name), value);
  }
  void add_text(std::string_view name, std::string_view text) { add(name, quoted(text)); }
  void add_number(std::string_view name, double value) {
    const char* const word = std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    add(name, std::isfinite(value) ? shortest_number(value) : word);
  }
  void add_number(std::string_view name, const std::optional<double>& value) {
    if (value) add_number(name, *value);
  }
  void add_count(std::string_view name, int64_t value) { add(name, std::to_string(value)); }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  static std::string quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::string text_;
};

}  // namespace

std::string utc_time(int64_t wall_ms) {
  const std::time_t seconds = wall_ms / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, wall_ms % 1000);
}

std::string shortest_number(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? shortest(narrow) : shortest(value);
}

std::string json_line(const TrainingRecord& record) {
  JsonMembers members;
  members.add_text("kind", record.kind);
  members.add_text("time", utc_time(record.wall_ms));
  members.add_number("seconds", record.seconds);
  members.add_count("epoch", record.epoch);
  members.add_count("step", record.step);
  if (record.progress) {
    members.add_count("epochs", record.progress->num_epochs);
    members.add_count("step_in_epoch", record.progress->step_in_epoch);
    members.add_count("steps_per_epoch", record.progress->steps_per_epoch);
  }
  members.add_number("loss", record.loss);
  members.add_number("learning_rate", record.learning_rate);
  members.add_number("rows_per_second", record.rows_per_second);
  if (record.progress) {
    members.add_number("epoch_seconds_left", record.progress->epoch_seconds_left);
    members.add_number("seconds_left", record.progress->seconds_left);
  }
  members.add_count("resident_bytes", record.resident_bytes);
  members.add_count("arena_bytes", record.arena_bytes);
  if (!record.ended.empty()) members.add_text("ended", record.ended);
  if (!record.signal.empty()) members.add_text("signal", record.signal);
  if (!record.metrics.empty()) {
    JsonMembers metrics;
    for (const auto& [name, value] : record.metrics) metrics.add_number(name, value);
    members.add("metrics", metrics.object());
  }
  return members.object();
}

std::string json_message(int64_t wall_ms, const std::string& text) {
  JsonMembers members;
  members.add_text("kind", "message");
  members.add_text("time", utc_time(wall_ms));
  members.add_text("text", text);
  return members.object();
}

}  // namespace tessera::train
