// RankNotes: what a process knows of a rank of its own, for those who look for the reason when a job stands still or
// has failed. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/rank_progress.h"
#include "tessera/comm/wait_times.h"

namespace tessera::comm {

// A rank that waits long in a call.
struct LongWait {
  int rank = 0;            // of the world
  std::string place;       // `all_reduce "fc.weight" #12 of group "world"`
  std::vector<int> ranks;  // of the world, that meet there
  int64_t waited_ms = 0;
  int peer = -1;  // of the world, which has not come there; -1: not known
};

// A call that an error has ended.
struct BrokenCall {
  LongWait wait;
  std::string line;          // of the script, that made what the call sends; "" where that is not known
  bool is_mismatch = false;  // the peer is there, and makes another call
};

class RankNotes {
 public:
  RankProgress& progress() { return progress_; }
  const RankProgress& progress() const { return progress_; }
  WaitTimes& wait_times() { return wait_times_; }
  void set_broken_call(BrokenCall call) {
    call.line = progress_.line_of_call(call.wait.place);
    const std::lock_guard lock(mutex_);
    broken_call_ = std::move(call);
  }
  // The latest one.
  std::optional<BrokenCall> broken_call() const {
    const std::lock_guard lock(mutex_);
    return broken_call_;
  }

 private:
  RankProgress progress_;
  WaitTimes wait_times_;
  mutable std::mutex mutex_;
  std::optional<BrokenCall> broken_call_;
};

}  // namespace tessera::comm
