// Keeps waiting compute threads from taking the cores of a busy machine.
//
// OpenMP's threads wait for each other by spinning, for milliseconds: right where each has a core of its own. Where
// other processes want the cores, a spinning thread holds up the one that it waits for. GNU's OpenMP spins shortly when
// it has more threads than there are cores; a CoreWatch makes it so while the threads of this process have to wait for
// cores.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "tessera/base/clock.h"

namespace tessera {

// What all threads of a process did since they were started.
struct ThreadTimes {
  int64_t running_ns = 0;
  int64_t waiting_ns = 0;  // ready to run, without a core
};

// Returns the times of this process; nothing where the system does not tell them. Source: /proc/self/task/*/schedstat.
std::optional<ThreadTimes> thread_times();

// How many times a thread of this process has lost its core although it had work; 0 where the system does not count it.
int64_t count_preemptions();

// Whether the user has said how OpenMP's threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT); then nobody else does.
bool waiting_is_chosen();

class CoreWatch {
 public:
  explicit CoreWatch(Clock& clock, std::function<std::optional<ThreadTimes>()> times = thread_times);
  ~CoreWatch();

  // Between steps: looks, at most every 100 ms, how long threads have waited for cores since the last look. Call it
  // from one thread.
  void look();
  // Whether waiting threads sleep.
  bool is_busy() const { return sleepers_ != nullptr; }

 private:
  // More OpenMP threads than there are cores, all asleep.
  class Sleepers;

  Clock& clock_;
  std::function<std::optional<ThreadTimes>()> times_;
  ThreadTimes last_;
  int64_t next_look_ns_ = 0;
  int quiet_looks_ = 0;
  bool has_room_ = true;  // for more threads
  std::unique_ptr<Sleepers> sleepers_;
};

}  // namespace tessera
