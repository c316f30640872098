// Ranks of a core each, so that none takes another one's time.
#pragma once

#include <sched.h>

namespace tessera::benchmarks {

// The calling thread, and those that it starts from here on, stay on one core: the one of the rank's number among those
// that they may run on. Nothing changes where there are fewer.
inline void stay_on_core(int rank) {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  int found = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores) || found++ != rank) continue;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    return;
  }
}

}  // namespace tessera::benchmarks
