// Reports as tests write them, by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/cluster/report/job_report.h"

namespace tessera::cluster {

inline constexpr const char* kGradients = "all_reduce \"fc\" #34 of group \"world\"";

// A rank of four on host node1, with the process 4700 + rank.
inline RankReport report_of(int rank, ReportEvent event, int cause = -1, const std::string& error = "") {
  RankReport report;
  report.rank = rank;
  report.size = 4;
  report.host = "node1";
  report.pid = 4700 + rank;
  report.job = "a job";
  report.time_ms = 1'700'000'000'000 + rank;
  report.event = event;
  report.cause = cause;
  report.error = error;
  report.step = 17;
  return report;
}

inline ReportedWait wait_for(int rank, const std::string& call = kGradients, const std::string& line = "model.py:41") {
  ReportedWait wait;
  wait.call = call;
  wait.line = line;
  wait.waits_for = rank;
  wait.ranks = {0, 1, 2, 3};
  wait.waited_ms = 12;
  return wait;
}

// That another rank's failure has stopped in a call.
inline RankReport stopped(int rank, int cause, const std::string& call = kGradients) {
  RankReport report = report_of(rank, ReportEvent::kStopped, cause);
  report.error = "stopped in " + call + " because rank " + std::to_string(cause) + " failed: it says so";
  report.waits = {wait_for(cause, call)};
  return report;
}

inline RankEnding ending(int rank, const std::string& signal, int exit_code, bool is_told = false) {
  RankEnding made;
  made.rank = rank;
  made.pid = 4700 + rank;
  made.time_ms = 1'700'000'000'100 + rank;
  made.signal = signal;
  made.exit_code = exit_code;
  made.words = signal.empty() ? "exit code " + std::to_string(exit_code) : "killed by signal " + signal;
  made.is_told = is_told;
  return made;
}

inline LauncherReport launcher(int first_failed, std::vector<RankEnding> endings) {
  LauncherReport made;
  made.host = "node1";
  made.pid = 4690;
  made.began_ms = 1'699'999'000'000;
  made.time_ms = 1'700'000'001'000;
  made.first_failed = first_failed;
  made.endings = std::move(endings);
  return made;
}

inline JobReport job_of(std::vector<RankReport> ranks, std::vector<LauncherReport> launchers = {},
                        std::vector<RankReport> last_ranks = {}) {
  JobReport job;
  job.launchers = std::move(launchers);
  keep_newest_job(job, std::move(ranks), std::move(last_ranks));
  return job;
}

}  // namespace tessera::cluster
