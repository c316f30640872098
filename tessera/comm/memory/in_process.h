// Ranks that are threads of one process: they read each other's buffers where they lie. Used by `--threads`, by tests
// and by simulations, whose link may be slow.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "tessera/comm/memory/board.h"
#include "tessera/comm/transport.h"

namespace tessera::comm {

// What the threads share: one per job. Thread-safe.
class InProcessWorld {
 public:
  InProcessWorld(int size, const WaitOptions& wait, const SimulatedLink& link = {});

  int size() const { return job_.size(); }
  JobState& job() { return job_; }
  // One rank's transport; it keeps the world alive.
  static std::unique_ptr<Transport> transport(std::shared_ptr<InProcessWorld> world);

 private:
  friend class InProcessTransport;
  // The board of a group, made by whichever member comes first.
  std::shared_ptr<void> board_of(const GroupInfo& group);

  JobState job_;
  BoardOptions options_;
  std::mutex mutex_;
  struct Entry {
    std::shared_ptr<void> board;
    int num_missing = 0;  // members that have not joined yet
  };
  std::map<std::pair<int, int>, Entry> boards_;  // by the group's number and part, until all members have joined
};

}  // namespace tessera::comm
