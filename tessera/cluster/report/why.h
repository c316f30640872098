// Who is guilty: what the reports of a job say together. The rank that all others wait for, that failed first, that
// made another call, met the first value that was not finite, or is only slow.
#pragma once

#include <string>
#include <vector>

#include "tessera/cluster/report/job_report.h"

namespace tessera::cluster {

struct Verdict {
  // In one word: "killed", "crashed", "failed", "full disk", "non-finite", "different calls", "ended", "stands still",
  // "stopped", "wait for each other", "late", "silent", "told to end", "waits", "slow", "none".
  std::string kind = "none";
  std::vector<int> ranks;  // that are guilty; none where nobody is
  // A sentence: `rank 2 (node1, pid 4713) was killed by SIGKILL in step 17; ranks 0, 1, 3 waited for it in all_reduce
  // "fc", made by model.py:41`. It is fit to be shown.
  std::string text;
};

Verdict find_verdict(const JobReport& report);

// The verdict, a row for each rank, and the last lines of the guilty one; as JSON one object.
std::string why_text(const JobReport& report);
std::string why_json(const JobReport& report);

}  // namespace tessera::cluster
