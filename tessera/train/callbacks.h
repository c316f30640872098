// The callbacks that come with Tessera, but those of logs/. LossMonitor and TimeMonitor print on every rank, as a
// script's own print would; EpochSummary prints on rank 0.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/checkpoint/write/checkpoint_config.h"
#include "tessera/checkpoint/write/retention.h"
#include "tessera/checkpoint/write/save_trigger.h"
#include "tessera/data/dataset.h"
#include "tessera/train/callback.h"

namespace tessera::train {

struct SaveCheckpointOptions;

// Where callbacks write a line, without its end.
using PrintLine = std::function<void(const std::string&)>;
// Writes to standard output and flushes it: lines of ranks that are threads do not mix.
void print_line(const std::string& line);

// Prints `epoch: 1 step: 20, loss is 2.3025851` every `per_print_times` steps; 0: never. The number is the shortest
// that reads back as the same float32. Throws InvalidArgument when negative.
class LossMonitor : public Callback {
 public:
  explicit LossMonitor(int64_t per_print_times = 1, PrintLine print = print_line);
  void begin(RunContext& run) override;
  void step_end(RunContext& run) override;

 private:
  int64_t per_print_times_;
  PrintLine print_;
  int64_t last_print_ = 0;
};

// Prints `epoch time: 1234.567 ms, per step time: 12.345 ms` after each epoch. data_size: the steps of an epoch, 0 for
// what the data set says.
class TimeMonitor : public Callback {
 public:
  explicit TimeMonitor(int64_t data_size = 0, PrintLine print = print_line);
  void epoch_begin(RunContext& run) override;
  void epoch_end(RunContext& run) override;

 private:
  int64_t data_size_;
  PrintLine print_;
  int64_t began_ns_ = 0;
};

struct EpochSummaryOptions {
  std::string row_name = "rows";            // what a row of the data is, in the plural: "images"
  std::optional<data::Dataset> valid = {};  // evaluated after each epoch: the model's metrics
  int num_workers = 1;                      // threads that make the batches of `valid`
};

// Prints a line after each epoch, on rank 0: `epoch 3/10: loss 0.4213, accuracy 0.8712, 1234.5 images/s, 12.3 s`. The
// loss is the mean of those that the epoch's steps reported, with dataset sinking of one for each loop; the metrics are
// those over `valid`; the time, and the rows trained on in it, are those of the epoch without the evaluation. Where
// another process has trained the epoch's first steps, loss, rows and time are those of the others, and the line says
// so: `epoch 3/10 from step 7: ...`.
class EpochSummary : public Callback {
 public:
  explicit EpochSummary(EpochSummaryOptions options = {}, PrintLine print = print_line);
  // Throws InvalidArgument where there is a `valid` and the model has no metrics, which would say something of it.
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;

 private:
  EpochSummaryOptions options_;
  PrintLine print_;
  int64_t began_ns_ = 0;
  int64_t first_step_ = 0;  // of the epoch, in this process
  double loss_sum_ = 0;
  int64_t num_losses_ = 0;
};

// Saves as its CheckpointConfig says (checkpoint/write/checkpoint_config.h), into `directory` (made if missing) as
// PREFIX-EPOCH_STEP.ckpt; PREFIX_1 and so on when checkpoints of that prefix are there already; those of a training
// that was resumed count together, whatever their prefix. Ranks that name one directory write one checkpoint together.
// Where async_save is set, a copy of the values is made beside the next step, in memory that is taken when training
// begins, and written while training goes on: the next save waits for it and throws its error, and so does the end of
// training. While it trains, no other job can write checkpoints into the directory. In automatic parallel the plan
// stands beside the checkpoints, as PREFIX-plan.json. Throws InvalidArgument for a config or prefix that does not fit;
// a field that another one disables is warned of when training begins.
class ModelCheckpoint : public Callback {
 public:
  explicit ModelCheckpoint(std::string prefix = "CKP", std::string directory = ".",
                           const checkpoint::CheckpointConfig& config = {});
  void begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void end(RunContext& run) override;
  // Takes the newest checkpoint of this training that all ranks hold. Where ranks have checkpoints, but none that all
  // of them can use, it throws InvalidArgument saying what each rank has. Nothing is deleted.
  bool load_latest(RunContext& run) override;
  bool saves() const override { return true; }
  SavedNames saved_names() const override {
    return {.directory = directory_, .prefix = given_prefix_, .encryption = {config_.enc_key, config_.enc_mode}};
  }
  std::string save_before_end(RunContext& run) override;
  // The path of the newest one, which a thread may still be writing; "" before the first.
  const std::string& latest() const { return latest_; }

 private:
  void lock_directory(RunContext& run);
  void save(RunContext& run);
  std::string choose_prefix(RunContext& run);
  std::string recorded_prefix(RunContext& run) const;
  void record_prefix(RunContext& run) const;
  SaveCheckpointOptions save_options(const checkpoint::CheckpointInfo& info) const;

  std::string given_prefix_;
  std::string prefix_;
  std::string directory_;
  checkpoint::CheckpointConfig config_;
  std::vector<std::string> disabled_fields_;  // what a user is to be warned of, once
  std::optional<checkpoint::SaveTrigger> trigger_;
  std::shared_ptr<checkpoint::Retention> retention_;  // shared with a save that a thread writes
  std::shared_ptr<checkpoint::DirectoryLock> lock_;   // while it trains
  std::string latest_;
};

}  // namespace tessera::train
