// Threads that say what they were for when the system has no room for them: std::thread's own error names nothing, and
// one that is thrown while others run ends the program.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tessera {

// Throws IoError: "cannot start a thread for WHAT: REASON; ..." with the limits of this process.
[[noreturn]] void throw_no_thread(std::string_view what, const std::system_error& reason);

// A thread that calls body(). Throws IoError naming `what` where the system has no room for it.
template <typename Body>
std::thread start_thread(std::string_view what, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& reason) {
    throw_no_thread(what, reason);
  }
}

// Threads that are joined together, at the latest when the group goes: none is left when an error passes by. What they
// wait for must come also then.
class ThreadGroup {
 public:
  ThreadGroup() = default;
  ~ThreadGroup() { join(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Throws as start_thread does; those that were started before run on.
  template <typename Body>
  void start(std::string_view what, Body&& body) {
    threads_.reserve(threads_.size() + 1);
    threads_.push_back(start_thread(what, std::forward<Body>(body)));
  }
  // The same, but false where the system has no room: for work that fewer threads do as well.
  template <typename Body>
  bool try_start(Body&& body) {
    threads_.reserve(threads_.size() + 1);
    try {
      threads_.emplace_back(std::forward<Body>(body));
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

// While an ExitGuard lives, exit() ends the process at once, with its code and what was written to standard output: for
// a process whose threads work on what would be destroyed under them. A library may call it in any of them, as GNU's
// OpenMP does where it can start no thread. Called in a thread that has a guard, exit() destroys nothing but that
// thread's own objects; in another one also what was made after the latest guard, before it ends the
// process. Guards may be nested. Each is destroyed by the thread that made it.
class ExitGuard {
 public:
  ExitGuard();
  ~ExitGuard();
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
};

// From now on a thread's stack has at least 1 MiB: `ulimit -s`, whose value threads take, may say less than kernels
// need, and a stack that is too small ends the process by SIGSEGV. Returns whether the program's first thread, whose
// stack grows up to that limit, has as much too; the soft limit is raised where the hard one allows it.
bool make_room_on_stacks();
// Calls f, which throws nothing, where the stack has that room: in this thread, or in one for it. Throws IoError where
// no thread can be started.
void with_room_on_stack(const std::function<void()>& f);

// How a thread gives way to the others of the host.
enum class GivesWay : uint8_t {
  kNot,
  // Where another thread wants its core it has about a tenth of that one's time (SCHED_BATCH, 10 nicer than the
  // process), so it gets on however busy the cores are.
  kByShare,
  // It runs only while no other thread wants its core (SCHED_IDLE): on a busy host that may be never.
  kOnIdleCores,
};
GivesWay how_gives_way();  // the calling thread

// The calling thread, and the threads that it starts from now on, give way: on idle cores where this process may raise
// its threads again (RLIMIT_NICE, CAP_SYS_NICE); else by share, for they could wait for ever.
void give_way();
// Gives the calling thread the usual priority again, as far as the process may.
void run_as_usual();

// The threads of this process that wait for idle cores get on by share from now on: they have waited for long. Does
// nothing where the caller is such a thread, as all are when the whole process was started so.
void get_on_by_share();
// Gives the threads of this process that give way the usual priority again, as far as it may: someone waits for them.
// Does nothing where the caller is such a thread.
void stop_giving_way();

// How many of `wanted` threads can run beside those that there are, found by starting them; they end at once.
int count_startable_threads(int wanted);

}  // namespace tessera
