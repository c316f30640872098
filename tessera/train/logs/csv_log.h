// CsvLog: a training as a table of comma-separated values (docs/watching.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/train/logs/line_file.h"
#include "tessera/train/logs/training_log.h"

namespace tessera::train {

// Writes a row for each record into `file`, made where it is missing, under the columns kind, time, seconds, epoch,
// step, loss, learning_rate, rows_per_second, resident_bytes, arena_bytes and evaluated_NAME of each metric; what a
// record lacks is empty, and numbers that are not finite are nan, inf and -inf. A training that goes on from a
// checkpoint continues the file; rows of steps beyond that are dropped. The file of another training becomes FILE.1.
// begin() throws InvalidArgument for a file that has anything else in it, for what is no file, and for one that another
// training writes; it changes nothing there, the first record does.
class CsvLog : public TrainingLog {
 public:
  explicit CsvLog(std::string file, LogOptions options = {});

 protected:
  double open(RunContext& run, Beginning beginning) override;
  void start(RunContext& run) override;
  void write(const TrainingRecord& record) override;
  void close(RunContext& run) override;
  void let_go() override { file_.reset(); }

 private:
  using Row = std::vector<std::string>;
  bool has_column(const std::string& name) const;
  // Gives the lines of a table these columns, too, which the rows that are there lack. False where they have them.
  bool add_columns(const std::vector<std::string>& names, std::vector<std::string>& lines);

  std::string path_;
  std::vector<std::string> columns_;
  std::unique_ptr<LineFile> file_;
  bool is_new_ = true;
  std::vector<std::string> kept_;  // lines of before, until the first record
};

}  // namespace tessera::train
