// BackgroundSave: a thread that writes a checkpoint while training goes on. One save at a time, so that no more than
// one copy of the values waits in memory. It runs while no other thread wants its core, until someone waits for it.
#pragma once

#include <sys/types.h>

#include <exception>
#include <functional>
#include <thread>

namespace tessera::train {

class BackgroundSave {
 public:
  BackgroundSave() = default;
  // Waits for the thread. An error that nobody has asked for is logged.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Waits for the save before, throws its error, else begins this one. Throws IoError where no thread can be
  // started.
  void start(std::function<void()> save);
  // Waits. Throws what the save threw, once. In a child of fork() there is nothing to wait for.
  void finish();
  // In a child of fork(): whether its parent's save, whose thread is not here, was under way. It is no longer this
  // one's.
  bool leave_to_parent();

 private:
  std::thread thread_;
  pid_t process_ = -1;        // in which the thread runs
  std::exception_ptr error_;  // the thread's until it is joined
};

}  // namespace tessera::train
