#include "tessera/checkpoint/threads/companion.h"

#include <system_error>
#include <utility>

namespace tessera::checkpoint {

Companion::~Companion() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Companion::run(FunctionRef<void()> here, FunctionRef<void()> there) {
  if (!has_thread()) {
    there();
    here();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    task_ = there;
  }
  changed_.notify_all();
  try {
    here();
  } catch (...) {
    wait();  // what `there` looks at may be gone after this call
    error_ = nullptr;
    throw;
  }
  wait();
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
}

bool Companion::has_thread() {
  if (thread_.joinable()) return true;
  if (std::thread::hardware_concurrency() == 1) return false;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void Companion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !task_; });
}

void Companion::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return task_ || stops_; });
    if (!task_) return;
    const auto task = *task_;
    lock.unlock();
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    task_.reset();
    changed_.notify_all();
  }
}

}  // namespace tessera::checkpoint
