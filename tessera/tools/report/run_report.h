// RunReport: what the files of a training say together: its log, the output of its ranks, the reports of a failure, its
// checkpoints. It is small whatever size they have.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/report/curve.h"
#include "tessera/tools/report/log_reader.h"
#include "tessera/tools/report/run_facts.h"

namespace tessera::tools {

struct ReportSources {
  std::string path;         // a folder of logs, or a log
  std::string checkpoints;  // a folder of them; "": none is looked at
  std::string failure;      // the folder of the ranks' reports; "": `report` in the folder of the logs, if it is there
  std::string trace;        // a timeline; "": `trace.json` in the folder of the logs, if it is there
  std::string profile;      // of the machine, against which the timeline is held; "": none
};

// What an epoch's record says, with the metrics of an evaluation at its end.
struct EpochRow {
  int64_t epoch = 0;
  int64_t step = 0;
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
  std::optional<double> rows_per_second = {};
  std::optional<double> seconds = {};
  std::map<std::string, double> metrics = {};
};

// The end of what a rank has printed, of the launcher's file rank.N.
struct PrintedTail {
  std::string name;
  int64_t size_bytes = 0;
  std::vector<std::string> last_lines;
};

struct RunReport {
  std::string path;      // as it was named
  std::string log_path;  // "": there is none
  LogDamage damage;
  int64_t num_records = 0;
  int64_t num_step_records = 0;
  std::string first_time;
  std::string last_time;
  std::optional<double> seconds;  // of training, by the last record that says it
  int64_t last_step = 0;
  int64_t last_epoch = 0;
  // How often the log goes back to an earlier step: those are made again, and count as they were made last.
  int64_t num_returns = 0;
  std::string ended;   // as the last record says it, where that is an end: "completed"
  std::string signal;  // that has stopped it, as the same record says: "SIGTERM"
  std::string reason;  // for which it failed, as the same record says, in a line
  Curve loss;          // of steps; where the log has none, the means of epochs
  Curve learning_rate;
  Curve rows_per_second;
  Curve resident_bytes;
  Curve arena_bytes;
  std::map<std::string, Curve> metrics;
  int64_t num_metrics_left_out = 0;  // by their names, which are too many
  MedianSample speed;                // rows of a second
  std::deque<EpochRow> epochs;       // the latest ones
  int64_t num_epochs_left_out = 0;
  std::vector<RunFacts> runs;  // the processes that have written the log: the first one and the latest ones
  int64_t num_runs = 0;
  std::vector<PrintedTail> outputs;
  int64_t num_outputs_left_out = 0;
  std::optional<cluster::Verdict> verdict;  // of the failure's reports
  std::string why;                          // all that they say together
  std::string failure_problem;              // why there is a folder of reports and no verdict
  std::vector<checkpoint::ListedFile> checkpoints;
  bool shows_checkpoints = false;  // they were asked for
  std::optional<timeline::TimelineSummary> trace;
  std::string trace_path;     // "": there is none
  std::string trace_problem;  // why there is a file, and no summary of it

  // Of the latest process that has written the log; nullptr where no record says it.
  const PlanFacts* plan() const { return !runs.empty() && runs.back().plan ? &*runs.back().plan : nullptr; }
  const MemoryFacts* step_memory() const {
    return !runs.empty() && runs.back().memory ? &*runs.back().memory : nullptr;
  }
};

// Reads all of it. Throws InvalidArgument where there is nothing of a training, or the log has not one record among
// its lines, where a trace that was named is none, and UsageError where a profile has no trace; IoError where a file
// that was named cannot be read.
RunReport read_run(FileSystem& files, const ReportSources& sources);

// A line of the summary: what is said, and what it is.
struct Headline {
  std::string name;
  std::string text;
};
// How the run ended comes first, then steps, loss, metrics, speed, time, memory, the plan and operators, as far as the
// logs and a trace know them.
std::vector<Headline> headlines(const RunReport& report);
// How the run ended, in a sentence.
std::string ending_text(const RunReport& report);
// What of the log could not be read, and what is to be known of it, a sentence each.
std::vector<std::string> log_notes(const RunReport& report);

// A number of a log, as it is shown: "0.4213", "NaN".
std::string number_text(double value);
// "1 h 2 min 3 s", "12.3 s".
std::string duration_text(double seconds);

}  // namespace tessera::tools
