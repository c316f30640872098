// A guard is a process between the launcher and one rank. It ends all that the rank has started, however that was
// started (in a session of its own, by a parent that has ended since), when the rank ends, when the launcher asks for
// it and when the launcher is gone, also killed. A process whose parents have ended becomes the guard's child
// (PR_SET_CHILD_SUBREAPER), so none is out of its reach. Where the guard itself is killed, the kernel ends the rank,
// and what is left falls to the launcher, which ends it (launcher/fallen_processes.h).
#pragma once

#include <sys/types.h>

#include <atomic>

namespace tessera::cluster {

// What a guard tells the launcher, in memory that both share.
struct GuardReport {
  std::atomic<pid_t> rank_pid{0};
  std::atomic<int> start_error{0};     // errno where the rank could not be started
  std::atomic<int> status{0};          // how the rank has ended, as waitpid gives it
  std::atomic<bool> has_ended{false};  // the rank and all that it has started
};

// Signals that a guard understands: these it passes on to the rank's process group ...
inline constexpr int kPassedSignals[] = {1 /*SIGHUP*/, 2 /*SIGINT*/, 15 /*SIGTERM*/};
// ... and on this one it kills the rank and all that it has started, and ends.
inline constexpr int kEndAllSignal = 10 /*SIGUSR1*/;

// Where the launcher reads what the rank writes, and the rank's log into which it writes that; -1: the rank has no log.
struct GuardedLog {
  int pipe = -1;
  int log = -1;
};

// Calls `exec_rank`, which does not return, in a new process that is the rank, and watches over it until it has ended.
// It is called in a process that was forked for it by `launcher`; makes system calls only, since other threads of the
// launcher may have held locks. What a launcher that is gone has not read of the rank's last words goes to the log.
// Never returns.
[[noreturn]] void guard_rank(pid_t launcher, GuardReport& report, const GuardedLog& log, void (*exec_rank)(void*),
                             void* argument);

}  // namespace tessera::cluster
