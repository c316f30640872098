// SlowRanks: which rank the others wait for again and again, told by one that waits. Who is only slow is warned about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/wait_times.h"

namespace tessera::cluster {

// For whom a rank has waited most, of a while.
struct SlowRank {
  int rank = -1;
  int percent = 0;   // of that time, in all calls together
  std::string call;  // in which most of it was waited: `all_reduce "fc" of group "world"`
};

class SlowRanks {
 public:
  // Of `window_ms` the rank `own` has waited so long. Returns for whom most; nothing where it waited for nobody.
  std::optional<SlowRank> add(int own, const std::vector<comm::WaitTime>& times, int64_t window_ms);
  // What is to be warned of after the latest add(): a rank that has been slow for long, once. Of those that wait for it
  // the first rank warns.
  std::optional<SlowRank> warning() const { return warning_; }

 private:
  int slow_ = -1;  // the rank that was slow in the latest windows
  int num_windows_ = 0;
  int warned_of_ = -1;
  std::optional<SlowRank> warning_;
};

}  // namespace tessera::cluster
