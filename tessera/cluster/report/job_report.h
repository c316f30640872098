// JobReport: the reports of a job's ranks and launchers, read from their folder and put together.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/cluster/report/rank_report.h"

namespace tessera::cluster {

class JobReport {
 public:
  std::map<int, RankReport> ranks;
  // Of those that a loss has left, in the job's last generation, by their numbers there.
  std::map<int, RankReport> last_ranks;
  std::vector<LauncherReport> launchers;
  std::vector<std::string> left_out;  // files that were not taken, each with the reason
  uint64_t generation = 0;            // that the ranks' reports are of

  // Ranks of the job, as far as its reports tell.
  int size() const;
  // Whether the job has gone on since, in another generation.
  bool went_on() const;
  // Whether a loss has ended the job, and those that were left have made a last generation.
  bool has_last_generation() const;
  // How the rank's process of that generation has ended, and what launched it; null where no launcher has said so.
  const RankEnding* ending_of(int rank) const;
  const LauncherReport* launcher_of(int rank) const;

 private:
  friend void keep_newest_job(JobReport& report, std::vector<RankReport> ranks, std::vector<RankReport> last_ranks);
  void index_endings();

  std::map<int, std::pair<size_t, size_t>> endings_;  // by rank, where its ending is: which launcher's, and which
};

// Reads the reports in a folder. A file that is none, is damaged, or is of another job or an earlier generation than
// the newest one, is left out. `own`: a launcher's report that counts also where its file could not be written; then a
// folder that cannot be listed is an empty one. Throws IoError where the folder cannot be listed, InvalidArgument where
// it has no report.
JobReport read_job_report(FileSystem& files, const std::string& directory, const LauncherReport* own = nullptr);
// Takes these reports of ranks, but for those that are not of the newest one's job, or are of a generation that the job
// has survived before it ended in a later one; launchers are there already. `last_ranks`: of a last generation, which
// are taken where they are of the same job's.
void keep_newest_job(JobReport& report, std::vector<RankReport> ranks, std::vector<RankReport> last_ranks = {});

}  // namespace tessera::cluster
