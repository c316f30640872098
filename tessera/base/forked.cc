#include "tessera/base/forked.h"

#include <pthread.h>

#include <atomic>

#include "tessera/base/error.h"

namespace tessera {
namespace {

std::atomic<bool> has_threads = false;
std::atomic<bool> threads_are_parents = false;

}  // namespace

void require_threads_of_this_process() {
  if (threads_are_parents.load(std::memory_order_relaxed)) {
    throw Error(
        "this process was made by fork() after its parent had computed in threads, which are not here; start processes "
        "with multiprocessing.get_context(\"spawn\"), or before the first training or computation");
  }
  if (has_threads.load(std::memory_order_relaxed) || has_threads.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { threads_are_parents = true; });
}

}  // namespace tessera
