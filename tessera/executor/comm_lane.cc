#include "tessera/executor/comm_lane.h"

#include "tessera/base/error.h"
#include "tessera/base/logging.h"

namespace tessera::executor {

CommLane::CommLane(int rank) : thread_([this, rank] { work(rank); }) {}

CommLane::~CommLane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_one();
  thread_.join();
}

int64_t CommLane::start(const std::function<void()>& task) {
  int64_t ticket;
  {
    const std::lock_guard lock(mutex_);
    check(num_started_ - num_ended_ < kMaxPending, "too many collectives under way");
    ticket = num_started_++;
    tasks_[static_cast<size_t>(ticket % kMaxPending)] = &task;
  }
  started_.notify_one();
  return ticket;
}

void CommLane::wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return num_ended_ > ticket || error_; });
  if (error_) std::rethrow_exception(error_);
}

void CommLane::work(int rank) {
  set_log_rank(rank);
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [&] { return stop_ || (num_ended_ < num_started_ && !error_); });
    if (stop_) return;
    const auto* task = tasks_[static_cast<size_t>(num_ended_ % kMaxPending)];
    lock.unlock();
    std::exception_ptr error;
    try {
      (*task)();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
    } else {
      ++num_ended_;
    }
    ended_.notify_all();
  }
}

}  // namespace tessera::executor
