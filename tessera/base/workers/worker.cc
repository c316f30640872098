#include "tessera/base/workers/worker.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "tessera/base/logging.h"
#include "tessera/base/thread.h"

namespace tessera {

struct Worker::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> task;  // from when it is given until the thread takes it
  bool has_task = false;       // until it is done
  bool stops = false;
  bool is_watched = false;  // tasks that give way are
  uint64_t num_tasks = 0;
  std::exception_ptr error;
  // Since someone waits for the present task. Outside of the mutex: a thread that waits for idle cores while it holds
  // the mutex would keep whoever is about to raise it.
  std::atomic<bool> is_awaited = false;

  void work() {
    const bool is_idle_anyway = how_gives_way() == GivesWay::kOnIdleCores;  // the whole process may be
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return has_task || stops; });
      if (!has_task) return;
      auto taken = std::exchange(task, nullptr);
      const bool gives_way = is_watched && !is_idle_anyway;
      lock.unlock();
      std::exception_ptr thrown;
      if (gives_way && !is_awaited) {
        give_way();  // whoever has waited for the task before has ended that
        // Whoever waits by now may have looked for threads that give way before this was one.
        if (is_awaited) run_as_usual();
      }
      try {
        taken();
      } catch (...) {
        thrown = std::current_exception();
      }
      taken = nullptr;  // what it looks at may be gone once it counts as done
      lock.lock();
      error = thrown;
      has_task = false;
      changed.notify_all();
    }
  }

  // Sees to it that no task waits for idle cores for longer than `limit`.
  void watch(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return has_task || stops; });
      if (!has_task) return;
      const auto is_done = [&, number = num_tasks] { return !has_task || num_tasks != number; };
      // More than once: the task may have begun to wait for idle cores, or started a thread that does, after a look.
      while (!changed.wait_for(lock, limit, is_done)) {
        lock.unlock();
        get_on_by_share();
        lock.lock();
      }
    }
  }
};

Worker::Worker(WorkerOptions options) : options_(options) {}

Worker::~Worker() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_error("{}: {}", options_.purpose, error.what());
  }
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stops = true;
  }
  shared_->changed.notify_all();
  if (options_.gives_way) stop_giving_way();  // since its last task it may wait for an idle core
  thread_.join();
  if (watch_.joinable()) watch_.join();
}

void Worker::begin() {
  if (thread_.joinable()) return;
  auto shared = std::make_unique<Shared>();
  thread_ = std::thread([&shared = *shared] { shared.work(); });
  shared_ = std::move(shared);
  process_ = getpid();
  if (!options_.gives_way) return;
  try {
    watch_ = std::thread(
        [&shared = *shared_, limit = std::chrono::milliseconds(options_.idle_limit_ms)] { shared.watch(limit); });
    shared_->is_watched = true;
  } catch (const std::system_error&) {  // no room for it: then nothing gives way
  }
}

void Worker::start(std::function<void()> task) {
  finish();
  try {
    begin();
  } catch (const std::system_error& reason) {
    throw_no_thread(options_.purpose, reason);
  }
  give(std::move(task));
}

bool Worker::try_start(std::function<void()> task) {
  finish();
  try {
    begin();
  } catch (const std::system_error&) {
    return false;
  }
  give(std::move(task));
  return true;
}

void Worker::give(std::function<void()> task) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->task = std::move(task);
    shared_->has_task = true;
    ++shared_->num_tasks;
    shared_->is_awaited = false;
  }
  is_working_ = true;
  shared_->changed.notify_all();
}

void Worker::wait() {
  if (!is_working_) return;
  // Then there is nobody to be raised, and threads that do something else go on giving way.
  const auto is_done = [&] {
    const std::unique_lock look(shared_->mutex, std::try_to_lock);
    return look.owns_lock() && !shared_->has_task;
  };
  if (options_.gives_way && !is_done()) {
    shared_->is_awaited = true;
    stop_giving_way();
  }
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return !shared_->has_task; });
  is_working_ = false;
}

void Worker::finish() {
  leave_to_parent();
  wait();
  if (shared_ == nullptr) return;
  if (const auto error = std::exchange(shared_->error, nullptr)) std::rethrow_exception(error);
}

void Worker::run_both(FunctionRef<void()> here, FunctionRef<void()> there) {
  if (std::thread::hardware_concurrency() == 1 || !try_start([&there] { there(); })) {
    std::exception_ptr error;
    try {
      there();
    } catch (...) {
      error = std::current_exception();
    }
    here();
    if (error != nullptr) std::rethrow_exception(error);
    return;
  }
  try {
    here();
  } catch (...) {
    wait();  // what `there` looks at may be gone after this call
    shared_->error = nullptr;
    throw;
  }
  finish();
}

bool Worker::leave_to_parent() {
  if (!thread_.joinable() || process_ == getpid()) return false;
  thread_.detach();
  if (watch_.joinable()) watch_.detach();
  // Its lock may have been taken when the process was forked: nobody looks at it again.
  static_cast<void>(shared_.release());
  return std::exchange(is_working_, false);
}

}  // namespace tessera
