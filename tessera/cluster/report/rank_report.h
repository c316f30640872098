// What a rank and a launcher write down for those who look for the reason when a job stands still or has failed: a file
// of JSON each, in one folder (docs/why.md has its fields). A report is small whatever it tells of, and what is read of
// one is believed in nothing but its form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/rank_notes.h"

namespace tessera::cluster {

// What made a rank write its report.
enum class ReportEvent : uint8_t {
  kGoesOn,       // it was spoken of before, and goes on
  kWaits,        // it waits long for other ranks
  kStandsStill,  // it has come no further for long, and waits for nobody
  kStopped,      // another rank has failed
  kFailed,       // it fails itself
  kToldToEnd,    // by SIGTERM
  kCrashed,      // by a signal for a fault of its own
  kEnded,        // it has ended with exit code 0, and another rank has failed
  kLeft          // a loss has ended the job, and it has left the last generation with what was saved, or why not
};
std::string_view name_of(ReportEvent event);  // "stands still"

// A call in which a rank waits, or which an error has ended.
struct ReportedWait {
  std::string call;        // `all_reduce "fc" #12 of group "world"`
  std::string line;        // of the script, that made what it sends; "": not known
  int waits_for = -1;      // of the world; -1: not known
  std::vector<int> ranks;  // of the world, that meet there
  int64_t waited_ms = 0;
  bool is_mismatch = false;  // `waits_for` is there, and makes another call
  bool operator==(const ReportedWait&) const = default;
};

// What a rank's report says. A text of "" and a number of -1 say that nothing is known.
struct RankReport {
  int rank = 0;
  int size = 1;
  std::string host;
  int64_t pid = 0;
  std::string job;          // the launcher's name for it
  uint64_t generation = 0;  // of a job with a scheduler
  int64_t time_ms = 0;      // when it was written, since 1970
  ReportEvent event = ReportEvent::kGoesOn;
  int cause = -1;        // the rank with whose failure it began, as this one has heard
  std::string error;     // this rank's own words
  std::string signal;    // "SIGSEGV"
  int64_t step = 0;      // of the training, under way; 0: none is
  std::string doing;     // `matmul "fc"`, `the callbacks`
  std::string line;      // of the script, that made it
  int64_t doing_ms = 0;  // for so long it has come no further
  std::string script;    // where the script is, of a rank that hangs, or where it was left: "train.py:80"
  std::string thread;    // what its thread does: "it computes"
  std::vector<ReportedWait> waits;
  std::optional<comm::NonFiniteResult> non_finite;
  std::vector<std::string> warnings;  // that this rank has given, as of a slow one
  std::vector<std::string> log;       // the last lines of its log
};

// How a rank's process has ended, as its launcher has seen.
struct RankEnding {
  int rank = 0;
  int64_t pid = 0;
  int64_t time_ms = 0;
  std::string signal;  // "SIGKILL"; "": none
  int exit_code = 0;
  std::string words;     // "killed by signal SIGKILL", "exit code 1", why it could not be started
  bool is_told = false;  // the launcher had told it to end, or has killed it
  bool went_on = false;  // the job went on with another process
  bool is_last = false;  // in the last generation of a job that a loss has ended; the rank is its number there
  // That ended with it, where the job went on; else the newest that its launcher knows of. 0: there are none.
  uint64_t generation = 0;
  std::string doing;                    // what its process did when the launcher killed it: "it has been stopped"
  std::vector<std::string> last_lines;  // of its output
  bool has_failed() const { return !signal.empty() || exit_code != 0; }
};

struct LauncherReport {
  std::string host;
  int64_t pid = 0;
  int64_t began_ms = 0;
  int64_t time_ms = 0;
  int first_failed = -1;  // the rank with whose failure it began, as the launcher has heard
  std::string signal;     // that has ended the launcher's job
  std::vector<RankEnding> endings;
};

// The most bytes of a report.
inline constexpr int64_t kMaxReportBytes = int64_t{256} << 10;
// The most of a launcher's, which tells of many ranks.
inline constexpr int64_t kMaxLauncherReportBytes = int64_t{16} << 20;
// More ranks than any job has.
inline constexpr int kMaxReportedRanks = 16384;

// Prints a report as JSON. Texts and lists that are too long are cut.
std::string print_report(const RankReport& report);
std::string print_report(const LauncherReport& report);
// Reads one. Throws InvalidArgument saying what is wrong: no JSON, a field that is missing, of another type or out of
// range. Texts are as they were written, fit for nothing but printable().
RankReport parse_rank_report(std::string_view text);
LauncherReport parse_launcher_report(std::string_view text);

// The files' names: "rank.2.json", "rank.2.last.json" of what a rank of the job's last generation writes, where ranks
// may have other numbers, and "launcher.node1.4711.json".
std::string rank_report_name(int rank);
std::string last_report_name(int rank);
std::string launcher_report_name(const std::string& host, int64_t pid);

}  // namespace tessera::cluster
