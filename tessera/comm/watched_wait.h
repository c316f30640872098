// WatchedWait: one wait of a call for a peer. Once it is long, whoever asks what this rank does hears of it; once it is
// longer, long before the deadline, the job is told, and says who is waited for. How long a rank has waited for whom,
// and the wait that an error has ended, stand in the rank's notes.
#pragma once

#include <atomic>
#include <cstdint>

#include "tessera/comm/transport.h"

namespace tessera::comm {

class WatchedWait {
 public:
  // `peer` is a rank of the group; -1: which one is waited for is not known. All that is given outlives the wait; it
  // costs nothing before it is looked at.
  WatchedWait(const CallHeader& call, const GroupInfo& group, int peer, int64_t timeout_ms, JobState& job);
  ~WatchedWait();
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

  // To be called now and then, with the time since the wait began. It may take as long as the job waits for answers of
  // other ranks.
  void look(int64_t waited_ms);
  // The wait ends now: how long it was, for who does not look again.
  void set_waited(int64_t waited_ms) { waited_ms_.store(waited_ms, std::memory_order_relaxed); }

 private:
  LongWait description() const;
  void note_end() const;

  const CallHeader& call_;
  const GroupInfo& group_;
  int peer_;
  int64_t timeout_ms_;
  JobState& job_;
  int num_exceptions_;
  std::atomic<int64_t> waited_ms_{0};
  int number_ = 0;  // in the job; 0: it does not know yet
  bool is_reported_ = false;
};

}  // namespace tessera::comm
