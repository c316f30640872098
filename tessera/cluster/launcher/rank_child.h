// A rank's process with its guard, as its launcher sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/launcher/rank_output.h"

namespace tessera::cluster {

struct RankChild {
  pid_t guard = -1;
  Socket guard_fd;  // readable when the guard, and so the rank, has ended
  bool is_running = false;
  int64_t rank_ended_ms = 0;      // when the rank was seen to have ended though its guard has not; 0: it was not
  bool has_woken_guard = false;   // since then
  int status = 0;                 // of the rank
  int64_t num_out_of_memory = 0;  // that the system had killed for want of memory when it started
  bool is_out_of_memory = false;  // it was killed, and the system has killed some for want of memory since
  RankOutput out;
  RankOutput err;
  std::string log_path;
  std::deque<std::string> last_lines;
  Socket kept;               // memory that its processes share, one after the other
  Socket kept_for_others;    // likewise, for what other ranks give it
  int num_restarts = 0;      // so far
  uint64_t after = 0;        // the generation that had ended when its latest process started; 0: none had
  int num_idle = 0;          // processes that have ended before they were of a generation, in a row
  bool is_awaited = false;   // it has failed, and the job may go on with another process
  bool is_for_good = false;  // it has failed as another process would: none is started
  int64_t ended_ms = 0;      // when it did
  int64_t ended_at_ms = 0;   // when its process ended, since 1970
  bool is_dropped = false;   // the job goes on without the rank, or ends without it
  bool ends_job = false;     // because it cannot go on: those that are left make its last generation
  bool is_planned = false;   // that was asked for: nothing has failed
  bool has_stepped = false;  // its latest process has finished a step of a training
  std::string failed_with;   // how the process before has failed, where that was before its first step; "": it was not
  std::string last_word;     // what its process has said itself of its failure, as the scheduler passes it on
  bool is_told = false;      // to end, or killed, by the launcher
  std::string doing;         // what its process did when the launcher killed it
  int64_t kill_ms = 0;       // when it is killed, if it still runs; 0: nobody has asked for that
  int64_t restart_ms = 0;    // when another process is started; 0: nobody has said that the job goes on
};

}  // namespace tessera::cluster
