// ProgressBar: how far a training is and how long the rest takes, on standard output. Rank 0 only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/train/callback.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/core/learning_rate_reader.h"
#include "tessera/train/logs/training_record.h"

namespace tessera::train {

// How lines are printed: for people, or a JSON object each.
enum class LogFormat { kText, kJson };
// "text" or "json". Throws InvalidArgument for anything else.
LogFormat parse_log_format(const std::string& name);

// How long steps take, by the median of the latest ones: a step that has waited for a disk counts as one of many.
class StepTimes {
 public:
  // Steps that have taken so long together.
  void add(int64_t num_steps, int64_t duration_ns);
  // Returns what one step takes; 0 before the first.
  double median_seconds() const;
  void clear() { seconds_.clear(); }

 private:
  std::vector<double> seconds_;  // a ring
  size_t next_ = 0;
};

// "7 s", "2:05", "1:02:03".
std::string duration_text(double seconds);
// `epoch 1/5 [######..................] 25/100  loss 0.4213  rate 0.02  812.3 rows/s  7 s, in all 2:05 left  1.2 GiB`:
// left are those of the epoch, and of all epochs. `width`: the most characters; the bar goes first, then what is at the
// end. 0: any number.
std::string progress_text(const TrainingRecord& record, const std::string& row_name, int width);

struct ProgressBarOptions {
  int64_t rows_per_step = 0;      // of all ranks; 0: what the data set's batches have
  std::string row_name = "rows";  // what a row of the data is, in the plural: "images"
  double interval_s = 10;         // between lines, where they are not drawn over
  bool steps = true;              // false: nothing is printed between epochs
  LogFormat format = LogFormat::kText;
};

// On a terminal one line that is drawn over; elsewhere, and as JSON, a line after the first step and then every
// interval_s seconds. As JSON there is a line for each epoch and evaluation, too: those of JsonLog.
class ProgressBar : public Callback {
 public:
  // Throws InvalidArgument for negative numbers.
  explicit ProgressBar(ProgressBarOptions options = {}, PrintLine print = print_line);
  explicit ProgressBar(int64_t rows_per_step) : ProgressBar(ProgressBarOptions{.rows_per_step = rows_per_step}) {}
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;
  void end(RunContext& run) override;

 private:
  bool is_due(int64_t now_ns);
  TrainingRecord record_of(const RunContext& run, const char* kind) const;
  TrainingRecord progress_of(const RunContext& run) const;
  void draw(const TrainingRecord& record, bool is_last) const;
  void print_evaluations(const RunContext& run);

  ProgressBarOptions options_;
  PrintLine print_;
  bool is_terminal_;
  std::optional<LearningRateReader> rates_;
  StepTimes times_;
  int64_t began_ns_ = 0;
  int64_t epoch_began_ns_ = 0;
  int64_t last_step_ns_ = 0;
  int64_t printed_ns_ = 0;  // 0: not yet
  int64_t last_step_ = 0;
  int64_t epoch_ = 0;
  int64_t first_step_of_epoch_ = 0;
  int64_t num_evaluations_ = 0;
  double loss_sum_ = 0;
  int64_t num_losses_ = 0;
};

}  // namespace tessera::train
