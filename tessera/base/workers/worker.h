// Worker: a thread that does one task at a time for its owner, who goes on meanwhile: a checkpoint is written while
// training goes on, a block is summed up while it is written. The thread begins with the first task and sleeps between
// two. A worker belongs to one thread.
//     worker.start([&] { save(); });
//     ...
//     worker.finish();
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "tessera/base/function_ref.h"

namespace tessera {

struct WorkerOptions {
  // What it is for, as errors say it. Must outlive the worker.
  std::string_view purpose = "work beside another one";
  // Its tasks give way to other threads (thread.h): on idle cores for a while, then by share, until someone waits for
  // them. So they get on, also where all cores are busy all the time.
  bool gives_way = false;
  // The while. A checkpoint of 1 GiB beside a training on 2 cores takes 8 s on what that leaves; ranks that save
  // together wait 30 s for each other, unless they are told otherwise.
  int64_t idle_limit_ms = 10'000;
};

class Worker {
 public:
  explicit Worker(WorkerOptions options = {});
  // Waits for the task. An error that nobody has asked for is logged.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Waits for the task before, throws its error, else begins this one. Throws IoError where the system has no room for
  // the thread.
  void start(std::function<void()> task);
  // The same, but false where the system has no room: then nothing has begun.
  bool try_start(std::function<void()> task);
  // Waits. Throws what the task threw, once. In a child of fork() there is nothing to wait for.
  void finish();
  // Calls `here` on this thread and `there` on the worker's; returns when both are done. What `here` throws is
  // rethrown, else what `there` throws. On a machine of one core, and where the system has no room for a thread, both
  // run on this thread, `there` first.
  void run_both(FunctionRef<void()> here, FunctionRef<void()> there);
  // In a child of fork(): whether its parent's task, whose thread is not here, was under way. It is no longer this
  // one's.
  bool leave_to_parent();

 private:
  struct Shared;  // between the owner and the thread
  // Throws std::system_error where the system has no room for the thread.
  void begin();
  void give(std::function<void()> task);
  void wait();

  WorkerOptions options_;
  std::unique_ptr<Shared> shared_;
  std::thread thread_;
  std::thread watch_;        // of tasks that give way
  pid_t process_ = -1;       // in which the thread runs
  bool is_working_ = false;  // since start(), until someone has waited
};

}  // namespace tessera
