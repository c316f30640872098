// RankActivity: whether the processes of a launcher's ranks do anything. By this a launcher tells a start that takes
// long, as that of a script which imports much on a busy host, from a process that is stopped or hangs.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/cluster/launcher/rank_process.h"

namespace tessera::cluster {

class RankActivity {
 public:
  // Both must outlive it; there is a report for each rank.
  RankActivity(GuardReports& reports, size_t num_ranks, Clock& clock = Clock::system())
      : reports_(reports), clock_(clock), seen_(num_ranks) {}

  // The places of ranks whose process runs and has been seen to do nothing for so long: neither it nor any process that
  // it has started has computed, is about to, or waits for a disk. A process that is looked at for the first time is
  // not among them, and none is where the system does not tell. Any thread, one at a time.
  std::vector<uint32_t> find_idle(int64_t at_least_ms = 0);

 private:
  struct Seen {
    pid_t pid = 0;
    uint64_t work = 0;
    int64_t since_ns = 0;
  };
  GuardReports& reports_;
  Clock& clock_;
  std::vector<Seen> seen_;  // at the last look, by place
};

}  // namespace tessera::cluster
