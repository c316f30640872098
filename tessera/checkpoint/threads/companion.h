// Companion: a second thread that does a part of the work beside its owner, a short piece at a time. Internal to this
// folder.
//     companion.run([&] { file.append(block); }, [&] { crc = crc32c(block, crc); });
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "tessera/base/function_ref.h"

namespace tessera::checkpoint {

class Companion {
 public:
  Companion() = default;
  ~Companion();
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;

  // Calls `here` on this thread and `there` on the other; returns when both are done. What `here` throws is rethrown,
  // else what `there` throws. On a machine of one core, and where the
  // system has no room for a thread, both run on this thread, `there` first. The other thread begins
  // with the first call and sleeps between calls.
  void run(FunctionRef<void()> here, FunctionRef<void()> there);

 private:
  // Begins the other thread where there is none yet.
  bool has_thread();
  void work();
  void wait();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<FunctionRef<void()>> task_;  // until it is done
  std::exception_ptr error_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace tessera::checkpoint
