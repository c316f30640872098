// For LD_PRELOAD: the date of a process is set a day ahead, three seconds after it has begun, as by NTP at a host whose
// clock was wrong. The other clocks go on.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr time_t kAfterS = 3;
constexpr time_t kStepS = 86400;

timespec read_clock(clockid_t clock) {
  timespec now{};
  syscall(SYS_clock_gettime, clock, &now);
  return now;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) {
  static const time_t start_s = read_clock(CLOCK_MONOTONIC).tv_sec;
  *now = read_clock(clock);
  if (clock == CLOCK_REALTIME && read_clock(CLOCK_MONOTONIC).tv_sec >= start_s + kAfterS) now->tv_sec += kStepS;
  return 0;
}
