#include "tessera/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"

namespace tessera {

void throw_no_thread(std::string_view what, const std::system_error& reason) {
  throw IoError("cannot start a thread for {}: {}; {}; raise the limits of processes and memory, or use fewer threads",
                what, reason.code().message(), limits_text());
}

bool make_room_on_stacks() {
  constexpr size_t kLeastStack = size_t{1} << 20;
  pthread_attr_t usual;
  size_t bytes = 0;
  pthread_getattr_default_np(&usual);
  pthread_attr_getstacksize(&usual, &bytes);
  if (bytes < kLeastStack) {
    pthread_attr_setstacksize(&usual, kLeastStack);
    pthread_setattr_default_np(&usual);
  }
  pthread_attr_destroy(&usual);
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStack) return true;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kLeastStack);
  return setrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= kLeastStack;
}

bool run_when_cores_are_idle() {
  const sched_param none{};
  if (sched_setscheduler(0, SCHED_IDLE, &none) == 0) return true;  // of Linux: of this thread alone
  constexpr int kLowest = 19;
  setpriority(PRIO_PROCESS, 0, kLowest);
  return false;
}

bool runs_when_cores_are_idle() { return sched_getscheduler(0) == SCHED_IDLE; }

void run_as_usual() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_OTHER, &none);
}

void stop_waiting_for_idle_cores() {
  if (runs_when_cores_are_idle()) return;
  // Once more where any was raised: it may have started another one while the list was read.
  for (bool any = true; any;) {
    any = false;
    std::error_code error;
    for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
         it.increment(error)) {
      const auto thread = static_cast<pid_t>(std::atoi(it->path().filename().c_str()));
      const sched_param none{};
      if (sched_getscheduler(thread) != SCHED_IDLE) continue;
      any = sched_setscheduler(thread, SCHED_OTHER, &none) == 0 || any;
    }
  }
}

void with_room_on_stack(const std::function<void()>& f) {
  if (make_room_on_stacks()) {
    f();
  } else {
    start_thread("the program, for which ulimit -s leaves its first thread too small a stack", f).join();
  }
}

int count_startable_threads(int wanted) {
  std::mutex mutex;
  std::condition_variable changed;
  bool all_tried = false;
  ThreadGroup threads;
  int started = 0;
  // All live until the last was tried: what counts is how many there can be at a time.
  while (started < wanted && threads.try_start([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return all_tried; });
  })) {
    ++started;
  }
  {
    const std::lock_guard lock(mutex);
    all_tried = true;
  }
  changed.notify_all();
  threads.join();
  return started;
}

}  // namespace tessera
