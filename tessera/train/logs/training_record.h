// TrainingRecord: what a log says of a training at one moment, and how it says it in JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera::train {

// How far a training is, and how long the rest takes.
struct ProgressRecord {
  int64_t num_epochs = 0;
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  double epoch_seconds_left = 0;
  double seconds_left = 0;  // of all epochs, without what is done between them
};

struct TrainingRecord {
  std::string kind;     // "step", "epoch", "evaluation", "progress" or "end"
  int64_t wall_ms = 0;  // since 1970-01-01 UTC
  double seconds = 0;   // since the training began
  int64_t epoch = 0;
  int64_t step = 0;  // since the beginning of training
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> rows_per_second = {};
  int64_t resident_bytes = 0;  // of this process, in the host's memory
  int64_t arena_bytes = 0;     // of this rank, on its device
  std::map<std::string, double> metrics = {};
  std::optional<ProgressRecord> progress = {};
  std::string ended = {};   // of an end how: "completed", "stopped" or "failed"
  std::string signal = {};  // that has stopped it: "SIGTERM"
};

// "2026-03-04T05:06:07.089Z".
std::string utc_time(int64_t wall_ms);
// The shortest decimal that reads back as the same number; of what a float32 holds, as the same float32.
std::string shortest_number(double value);
// One line, without its end. What is absent has no key. Numbers that are not finite are the strings "NaN", "Infinity"
// and "-Infinity": JSON has no such numbers, and null would not say which it was.
std::string json_line(const TrainingRecord& record);
// {"kind":"message","time":...,"text":...}.
std::string json_message(int64_t wall_ms, const std::string& text);

}  // namespace tessera::train
