#include "tessera/cluster/launcher/fallen_processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>

#include "tessera/base/clock.h"
#include "tessera/cluster/launcher/process_tree.h"

namespace tessera::cluster {

FallenProcesses::FallenProcesses() : can_tell_(own_children().empty()) {
  if (can_tell_ && prctl(PR_GET_CHILD_SUBREAPER, &before_) == 0) prctl(PR_SET_CHILD_SUBREAPER, 1);
}

FallenProcesses::~FallenProcesses() {
  if (can_tell_) prctl(PR_SET_CHILD_SUBREAPER, before_);
}

bool FallenProcesses::end_all_but(const std::vector<pid_t>& own, int64_t limit_ms) const {
  if (!can_tell_) return true;
  constexpr int64_t kPauseMs = 10;
  for (int64_t waited_ms = 0;; waited_ms += kPauseMs) {
    bool any = false;
    for (const pid_t child : own_children()) {
      if (std::ranges::find(own, child) != own.end()) continue;
      any = true;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
    }
    // A process that is killed leaves its own children to us: only a look that finds none is the last one.
    if (!any) return true;
    if (waited_ms >= limit_ms) return false;
    Clock::system().sleep_ms(kPauseMs);
  }
}

}  // namespace tessera::cluster
