// FallenProcesses: what a rank has started and its guard, which somebody has killed, has left behind. While it lives,
// such processes become children of this one (PR_SET_CHILD_SUBREAPER), however they were started, and can be ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace tessera::cluster {

class FallenProcesses {
 public:
  // A process that has children already, as one that a shell with jobs in its background has become by exec, stays as
  // it is: what those leave behind could not be told from what a guard does.
  FallenProcesses();
  ~FallenProcesses();
  FallenProcesses(const FallenProcesses&) = delete;
  FallenProcesses& operator=(const FallenProcesses&) = delete;

  // Kills all children of this process but `own`, and what falls to it from them, until there are none, for `limit_ms`
  // at most: one that waits for a disk ends when it has that. Returns whether none is left.
  bool end_all_but(const std::vector<pid_t>& own, int64_t limit_ms) const;

 private:
  bool can_tell_ = false;  // who is whose
  int before_ = 0;         // whether this process was a subreaper
};

}  // namespace tessera::cluster
