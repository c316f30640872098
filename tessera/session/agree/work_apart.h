// WorkApart: ranks that work long, each by itself, before all of them go on together. Those that have done their part
// wait for the others as long as each of these comes further: a deadline counts from a rank's latest piece of work, not
// from the beginning. A rank that stands still is named by the wait, as in any other call.
#pragma once

#include <cstdint>

#include "tessera/base/clock.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/rank_progress.h"

namespace tessera::session {

class WorkApart {
 public:
  // The latest meeting is so long ago when a rank that works meets the others again: short beside any deadline.
  static constexpr int64_t kPauseMs = 100;

  // `who` names the work in errors and to those who look on. `progress` may be null. All that is given outlives them.
  WorkApart(comm::Communicator& group, const char* who, comm::RankProgress* progress, Clock& clock);
  // Says that this rank has come further. To be called after each piece of the work, on the thread that makes the
  // group's calls.
  void after_piece();
  // Ends this rank's work; returns when all others have ended theirs. Collective.
  void finish();

 private:
  // Returns whether some rank works on.
  bool meet(bool works);

  comm::Communicator& group_;
  const char* who_;
  comm::RankProgress* progress_;
  Clock& clock_;
  int64_t met_ns_;  // when it did so last, or began
};

}  // namespace tessera::session
