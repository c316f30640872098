// What a thread has computed, however long it had to wait for a core.
#pragma once

#include <time.h>

#include <cstdint>

namespace tessera {

// Nanoseconds of the calling thread's, since it began.
inline int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

}  // namespace tessera
