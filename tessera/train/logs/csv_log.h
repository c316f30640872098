// CsvLog: a training as a table of comma-separated values (docs/watching.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/train/logs/line_file.h"
#include "tessera/train/logs/training_log.h"

namespace tessera::train {

// Writes a row for each record into `file`, made where it is missing, under the columns kind, time, seconds, epoch,
// step, loss, learning_rate, rows_per_second, resident_bytes, arena_bytes and evaluated_NAME of each metric; what a
// record lacks is empty, and numbers that are not finite are nan, inf and -inf. A training that goes on from a
// checkpoint continues the file; rows of steps beyond that are dropped. The file of another training becomes FILE.1.
// begin() throws InvalidArgument for a file that has anything else in it.
class CsvLog : public TrainingLog {
 public:
  explicit CsvLog(std::string file, LogOptions options = {});

 protected:
  double open(RunContext& run, bool goes_on) override;
  void write(const TrainingRecord& record) override;
  void close(RunContext& run) override;

 private:
  using Row = std::vector<std::string>;
  bool has_column(const std::string& name) const;
  // Has the file these columns, too, which the rows that are there lack.
  void add_columns(const std::vector<std::string>& names);

  std::string path_;
  FileSystem* files_ = nullptr;
  std::vector<std::string> columns_;
  std::optional<LineFile> file_;
};

}  // namespace tessera::train
