#include "tessera/executor/comm_lane.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"

namespace tessera::executor {

CommLane::CommLane(int rank)
    : thread_(start_thread(fmt::format("the collectives of rank {}", rank), [this, rank] { work(rank); })) {}

CommLane::~CommLane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_one();
  thread_.join();
}

int64_t CommLane::start(Task task, bool wakes) {
  int64_t ticket;
  {
    const std::lock_guard lock(mutex_);
    check(num_started_ - num_ended_ < kMaxPending, "too many collectives under way");
    ticket = num_started_++;
    tasks_[static_cast<size_t>(ticket % kMaxPending)] = std::move(task);
  }
  if (wakes) started_.notify_one();
  return ticket;
}

void CommLane::wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  while (num_ended_ <= ticket && !error_) {
    if (has_next()) {
      run_next(lock);
    } else {
      ended_.wait(lock);
    }
  }
  if (error_) std::rethrow_exception(error_);
  // The thread may have been told of what follows while we ran a task, and have gone back to sleep.
  if (has_next()) started_.notify_one();
}

void CommLane::drain() {
  std::unique_lock lock(mutex_);
  while (is_running_ || has_next()) {
    if (has_next()) {
      run_next(lock);
    } else {
      ended_.wait(lock);
    }
  }
}

void CommLane::wake() {
  {
    const std::lock_guard lock(mutex_);
    if (!has_next()) return;
  }
  started_.notify_one();
}

void CommLane::run_next(std::unique_lock<std::mutex>& lock) {
  const Task task = std::move(tasks_[static_cast<size_t>(num_ended_ % kMaxPending)]);
  is_running_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    (*task)();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_running_ = false;
  if (error) {
    error_ = error;
  } else {
    ++num_ended_;
  }
  ended_.notify_all();
}

void CommLane::work(int rank) {
  set_log_rank(rank);
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [&] { return stop_ || has_next(); });
    if (stop_) return;
    run_next(lock);
  }
}

void CommLanes::drain() {
  for (CommLane& lane : lanes_) lane.wake();
  for (CommLane& lane : lanes_) lane.drain();
}

}  // namespace tessera::executor
