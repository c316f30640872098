// How ranks that save together agree: the checkpoint folder's Barrier on a communicator, whose waits have a deadline
// that a disk may miss.
#pragma once

#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/comm/communicator.h"

namespace tessera::train {

// The name of the collectives by which ranks save together.
inline constexpr const char* kCheckpointCalls = "checkpoint";

class RankBarrier : public checkpoint::Barrier {
 public:
  explicit RankBarrier(comm::Communicator& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<std::string> exchange(const std::string& mine) override;
  // The work has a thread of its own; this one meets the other ranks every 100 ms.
  void run_long(FunctionRef<void()> work) override;
  // A comm::PeerFailure, so that whoever reports the end of the job names the rank that it began with.
  [[noreturn]] void throw_failure_of(int rank, const std::string& message) const override;
  // As run_long, for work that needs at times what all ranks do together on the group. Every rank gives the same
  // `num_turns` and runs `turn` so often, on the calling thread: each time when no rank works, since its work has ended
  // or waits. It waits by calling what it is given, which returns after the next turn.
  void run_in_turns(int64_t num_turns, FunctionRef<void()> turn,
                    FunctionRef<void(FunctionRef<void()> await_turn)> work);

 private:
  comm::Communicator& group_;
};

}  // namespace tessera::train
