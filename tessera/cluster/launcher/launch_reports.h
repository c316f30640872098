// LaunchReports: what a launcher adds to the reports of its ranks: how their processes have ended, which those that
// were killed cannot say themselves. It puts all of them together and says who is guilty.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/cluster/report/rank_report.h"

namespace tessera::cluster {

class LaunchReports {
 public:
  // The folder of the reports; "": there are none. What an earlier launcher of this host has left there is removed.
  LaunchReports(const std::string& directory, const std::string& host);

  // As ranks need it, which may work in other folders.
  const std::string& directory() const { return directory_; }
  // A rank is about to be started: what an earlier job has left of it is removed.
  void forget(int rank);
  void add(RankEnding ending);
  // Writes the launcher's report. `first_failed`: -1 where no rank has failed; `signal`: "" where none has ended the
  // job. What fails is logged.
  void write(int first_failed, const std::string& signal);
  // Who is guilty, as lines of the launcher; "" where nothing can be said.
  std::string words() const;

 private:
  std::string directory_;
  LauncherReport report_;
};

// How a process has ended: its status as waitpid() gives it, and the words for it.
RankEnding ending_of(int rank, int64_t pid, int status, const std::string& words);

}  // namespace tessera::cluster
