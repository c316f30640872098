// JsonLog: a training as JSON Lines, a record each (docs/watching.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/train/logs/last_line.h"
#include "tessera/train/logs/line_file.h"
#include "tessera/train/logs/training_log.h"

namespace tessera::train {

// Writes {"kind":"step","time":"2026-03-04T05:06:07.089Z","seconds":1.25,"epoch":1,"step":20,"loss":2.3025851, ...} as
// a line of `file`, made where it is missing; before the first step of each call of train() a record of kind "run"
// (run_record.h), and where it ends one of kind "end". A training that goes on from a checkpoint continues the file;
// records of steps beyond that are dropped. The file of another training becomes FILE.1. begin() throws InvalidArgument
// for a file that has anything else in it, for what is no file, and for one that another training writes; it changes
// nothing there, the first record does.
class JsonLog : public TrainingLog {
 public:
  explicit JsonLog(std::string file, LogOptions options = {});

 protected:
  double open(RunContext& run, Beginning beginning) override;
  void start(RunContext& run) override;
  void write(const TrainingRecord& record) override;
  void close(RunContext& run) override;
  void let_go() override;
  void after_step(RunContext& run, int64_t previous_step) override;

 private:
  // The record of the end as it is where a signal ends the process now.
  void set_last_line(RunContext& run);
  std::string path_;
  std::unique_ptr<LineFile> file_;
  std::unique_ptr<LastLine> last_line_;  // once there is a record
  bool is_new_ = true;
  std::vector<std::string> kept_;  // lines of before, and how this process was started, until the first record
};

}  // namespace tessera::train
