// How ranks that save together agree: the checkpoint folder's Barrier on a communicator, whose waits have a deadline
// that a disk may miss.
#pragma once

#include "tessera/checkpoint/barrier.h"
#include "tessera/comm/communicator.h"

namespace tessera::train {

class RankBarrier : public checkpoint::Barrier {
 public:
  explicit RankBarrier(comm::Communicator& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<std::string> exchange(const std::string& mine) override;
  // The work has a thread of its own; this one meets the other ranks every 100 ms.
  void run_long(FunctionRef<void()> work) override;

 private:
  comm::Communicator& group_;
};

}  // namespace tessera::train
