#include "tessera/base/workers/in_threads.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/base/workers/worker.h"

namespace tessera {

void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(size_t)> body) {
  for_each_in_threads(num_threads, count, [&](const ThreadTurn& turn) { body(turn.i); });
}

void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(const ThreadTurn&)> body) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;
  std::atomic<bool> failed = false;
  const auto work = [&](size_t thread) {
    for (size_t i = next++; i < count && !failed; i = next++) {
      try {
        body({thread, i, failed});
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        failed = true;  // not before: whoever leaves off because of it must not be taken for the first
      }
    }
  };
  std::deque<Worker> workers;
  for (size_t i = 1; i < std::min(static_cast<size_t>(num_threads), count); ++i) {
    if (!workers.emplace_back().try_start([&, i] { work(i); })) break;
  }
  work(0);
  workers.clear();  // waits for them
  if (first) std::rethrow_exception(first);
}

int threads_for(int64_t num_bytes) {
  constexpr int64_t kMaxThreads = 8;
  constexpr int64_t kMinBytesPerThread = 4 << 20;
  const int64_t cores = std::thread::hardware_concurrency();  // 0 where nobody knows
  return static_cast<int>(
      std::clamp<int64_t>(num_bytes / kMinBytesPerThread, 1, std::clamp<int64_t>(cores, 1, kMaxThreads)));
}

}  // namespace tessera
