#include "tessera/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/base/function_ref.h"
#include "tessera/base/limits.h"

namespace tessera {

namespace {

std::atomic<int> num_exit_guards = 0;

void end_if_guarded(int code, void* /*nothing*/) {
  if (num_exit_guards == 0) return;
  std::fflush(stdout);
  _exit(code);
}

// What is registered last runs first, so objects that were made after a guard would be destroyed before it is asked.
// But exit() begins with the objects of its thread: there, a guard's thread registers once more, behind all of them.
struct GuardedThread {
  ~GuardedThread() {
    if (num_guards > 0) on_exit(end_if_guarded, nullptr);
  }
  int num_guards = 0;
};
thread_local GuardedThread guarded_thread;

}  // namespace

ExitGuard::ExitGuard() {
  ++num_exit_guards;
  ++guarded_thread.num_guards;
  on_exit(end_if_guarded, nullptr);
}

ExitGuard::~ExitGuard() {
  --num_exit_guards;
  --guarded_thread.num_guards;
}

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

namespace {

constexpr sched_param kNoParameters{};

int nice_of(pid_t thread) { return getpriority(PRIO_PROCESS, static_cast<id_t>(thread)); }
// Ten steps are a factor of 9.3 in the time that a thread gets (sched_prio_to_weight in the kernel's sched/core.c).
int nice_by_share() {
  constexpr int kSteps = 10;
  constexpr int kLowest = 19;
  return std::min(nice_of(getpid()) + kSteps, kLowest);
}

// Priorities are of a thread, not of its process, in Linux; 0 is the calling one.
GivesWay how_gives_way(pid_t thread) {
  const int policy = sched_getscheduler(thread);
  if (policy == SCHED_IDLE) return GivesWay::kOnIdleCores;
  return policy == SCHED_BATCH && nice_of(thread) >= nice_by_share() ? GivesWay::kByShare : GivesWay::kNot;
}

bool run_by_share(pid_t thread) {
  // First, so that it gives way all the while.
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread), std::max(nice_of(thread), nice_by_share()));
  return sched_setscheduler(thread, SCHED_BATCH, &kNoParameters) == 0;
}

bool run_as_usual(pid_t thread) {
  const bool has_changed = sched_setscheduler(thread, SCHED_OTHER, &kNoParameters) == 0;
  if (has_changed) setpriority(PRIO_PROCESS, static_cast<id_t>(thread), nice_of(getpid()));
  return has_changed;
}

// Whether a thread of this process that waits for idle cores can be taken out of that.
bool may_raise_threads() {
  bool may = false;
  try {
    std::thread([&] { may = sched_setscheduler(0, SCHED_IDLE, &kNoParameters) == 0 && run_as_usual(0); }).join();
  } catch (const std::system_error&) {  // no room for the thread
  }
  return may;
}

// Changes the threads of this process that give way so. `change` returns whether it has.
void change_those(FunctionRef<bool(GivesWay)> are_meant, FunctionRef<bool(pid_t)> change) {
  if (how_gives_way(0) != GivesWay::kNot) return;
  // Once more where any was changed: it may have started another one while the list was read.
  for (bool any = true; any;) {
    any = false;
    std::error_code error;
    for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
         it.increment(error)) {
      const auto thread = static_cast<pid_t>(std::atoi(it->path().filename().c_str()));
      if (are_meant(how_gives_way(thread))) any = change(thread) || any;
    }
  }
}

}  // namespace

GivesWay how_gives_way() { return how_gives_way(0); }

void give_way() {
  if (may_raise_threads() && sched_setscheduler(0, SCHED_IDLE, &kNoParameters) == 0) return;
  run_by_share(0);
}

void run_as_usual() { run_as_usual(0); }

void get_on_by_share() {
  change_those([](GivesWay how) { return how == GivesWay::kOnIdleCores; },
               [](pid_t thread) { return run_by_share(thread); });
}

void stop_giving_way() {
  change_those([](GivesWay how) { return how != GivesWay::kNot; }, [](pid_t thread) { return run_as_usual(thread); });
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
