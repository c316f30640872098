// Threads that say what they were for when the system has no room for them: std::thread's own error names nothing, and
// one that is thrown while others run ends the program.
#pragma once

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

// From now on a thread's stack has at least 1 MiB: `ulimit -s`, whose value threads take, may say less than kernels
// need, and a stack that is too small ends the process by SIGSEGV. Returns whether the program's first thread, whose
// stack grows up to that limit, has as much too; the soft limit is raised where the hard one allows it.
bool make_room_on_stacks();
// Calls f, which throws nothing, where the stack has that room: in this thread, or in one for it. Throws IoError where
// no thread can be started.
void with_room_on_stack(const std::function<void()>& f);

// The calling thread, and the threads that it starts from now on, run only while no other thread wants their core.
// Returns false where the system refuses; then they have the lowest priority that it grants.
bool run_when_cores_are_idle();

// Whether the calling thread runs so.
bool runs_when_cores_are_idle();
// Gives the calling thread, which runs so, the usual priority again, where the process may raise priorities.
void run_as_usual();

// Gives the threads of this process that run only on idle cores the usual priority again: someone waits for them. Does
// nothing where the caller is such a thread, as all are when the whole process was started so. A process that may not
// raise priorities (RLIMIT_NICE, CAP_SYS_NICE) leaves them as they are; they run while the caller waits and nobody else
// wants its core.
void stop_waiting_for_idle_cores();

// How many of `wanted` threads can run beside those that there are, found by starting them; they end at once.
int count_startable_threads(int wanted);

}  // namespace tessera
