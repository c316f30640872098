// LaunchReports: what a launcher adds to the reports of its ranks: how their processes have ended, which those that
// were killed cannot say themselves. It puts all of them together and says who is guilty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/cluster/report/rank_report.h"

namespace tessera::cluster {

class LaunchReports {
 public:
  // The folder of the reports; "": there are none.
  LaunchReports(const std::string& directory, const std::string& host);

  // As ranks need it, which may work in other folders.
  const std::string& directory() const { return directory_; }
  // What an earlier job has left there of launchers of this host and of these ranks, which are about to be started, is
  // removed. To be called where the job begins with them: in one that ran before they came, other launchers have
  // written what it is like, and nothing is removed.
  void forget_earlier(const std::vector<int>& ranks);
  void add(RankEnding ending);
  // Writes the launcher's report. `first_failed`: -1 where no rank has failed; `signal`: "" where none has ended the
  // job. What fails is logged.
  void write(int first_failed, const std::string& signal);
  // Who is guilty, as lines of the launcher, also where its report could not be written; "" where nothing can be said.
  std::string words() const;

 private:
  std::string directory_;
  LauncherReport report_;
};

// How a process has ended: its status as waitpid() gives it, and the words for it.
RankEnding ending_of(int rank, int64_t pid, int status, const std::string& words);

}  // namespace tessera::cluster
