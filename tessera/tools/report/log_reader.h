// LogReader: the records of a training's log, of JsonLog or CsvLog (docs/watching.md), one after the other, whatever
// else the file holds. It keeps a line at a time, so that it reads a log of any size in little memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

// A LogRecord is what a line of a log says. Numbers may be NaN and infinite.
struct LogRecord {
  std::string kind;  // "step", "epoch", "evaluation", "run" or "end"
  std::string time;
  int64_t epoch = 0;
  int64_t step = 0;
  std::optional<double> seconds = {};
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> rows_per_second = {};
  std::optional<double> resident_bytes = {};
  std::optional<double> arena_bytes = {};
  std::vector<std::pair<std::string, double>> metrics = {};
  std::string ended = {};   // of an end
  std::string signal = {};  // of an end that it has made
  std::string reason = {};  // of an end that is a failure
  std::string line = {};    // of a run, whose members are its own
};

// What of a log is no record.
struct LogDamage {
  int64_t num_lines = 0;                // that were read
  int64_t num_damaged = 0;              // that are no record
  int64_t num_other = 0;                // records of other kinds, such as messages
  bool has_cut_line = false;            // the last line has no end, and is no record: it was being written
  std::vector<std::string> first = {};  // of the damaged lines: "line 7: no JSON"
};

class LogReader {
 public:
  // Reads the log at `path`. Throws IoError where it cannot be read.
  LogReader(FileSystem& files, const std::string& path);

  // The next record; nothing at the end of the file as it was when it was opened.
  std::optional<LogRecord> next();
  // Says what of the lines so far was no record.
  const LogDamage& damage() const { return damage_; }

 private:
  struct RawLine {
    std::string_view text;  // valid until the next one is read
    bool is_too_long = false;
    bool has_end = true;
  };
  std::optional<RawLine> next_line();
  // A record, or what is wrong with the line. A record of no kind is of another one.
  std::optional<LogRecord> read_json(std::string_view line, std::string& problem);
  std::optional<LogRecord> read_row(std::string_view line, std::string& problem);
  bool take_columns(std::string_view line);

  std::unique_ptr<RangeReader> file_;
  int64_t size_bytes_ = 0;
  int64_t offset_ = 0;  // of what is to be read next
  std::string buffer_;
  size_t begin_ = 0;    // of the next line in the buffer
  size_t scanned_ = 0;  // so far there is no end of a line
  bool is_long_ = false;
  std::vector<std::string> columns_;  // of a table
  LogDamage damage_;
};

// The log that a path stands for: the file itself, or of a folder log.jsonl, else log.csv, else the only file of either
// ending. "" where a folder has none. Throws InvalidArgument where there is nothing of that name, or a folder has
// several.
std::string find_log(FileSystem& files, const std::string& path);

}  // namespace tessera::tools
