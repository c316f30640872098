// LeftBehind: whether the program of a rank does not leave a generation that has ended. The others have given it up and
// meet for the next one, and wait for it; a rank that hangs, as in a function of the user's, would never hear of that.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/cluster/report/rank_watch.h"

namespace tessera::cluster {

class LeftBehind {
 public:
  // `timeout_ms`: a rank that comes no further for so long hangs, as it does for those that wait for it.
  explicit LeftBehind(int64_t timeout_ms) : timeout_ms_(timeout_ms) {}

  // To be called for each look at the rank. `is_over`: its generation has ended. Returns why its process must end; ""
  // where it need not: it comes further, waits for others, which ends by itself, or is at something that may rightly
  // take long. Of what a program does outside of a training nothing is known, and so it may take as long as it likes.
  std::string look(const RankGlance& glance, bool is_over, int64_t now_ms);

 private:
  int64_t timeout_ms_;
  uint64_t count_ = 0;
  std::optional<int64_t> changed_ms_;  // when it was seen to have come further
  std::optional<int64_t> over_ms_;     // when its generation was seen to have ended
};

}  // namespace tessera::cluster
