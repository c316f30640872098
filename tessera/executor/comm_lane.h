// CommLane: a rank's thread for collectives. Tasks run in the order in which they are started; the compute lane waits
// for each by its ticket, and runs itself what the thread has not come to by then: to wake the thread and be woken by
// it takes longer than most small collectives. The lane owns a task until it has ended, so whoever started it may be
// gone by then; what the task works on must last as long as the lane, or until drain() returns. Nothing is allocated
// after construction while at most kMaxPending tasks are under way.
//
// A rank has several (CommLanes). All ranks start all their collectives in one order, and wait for none that they have
// not started; so the first of those under way that has not ended everywhere can go on, whichever lane it is in.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/ir/schedule.h"

namespace tessera::executor {

class CommLane {
 public:
  static constexpr int64_t kMaxPending = 4096;
  using Task = std::shared_ptr<const std::function<void()>>;

  explicit CommLane(int rank);
  // Lets the running task end (its own deadline bounds it), drops the rest.
  ~CommLane();
  CommLane(const CommLane&) = delete;
  CommLane& operator=(const CommLane&) = delete;

  // Tickets count up. The thread sleeps on where `wakes` is false: wait() follows at once.
  int64_t start(Task task, bool wakes = true);
  // Returns when the task and all before it have ended. Rethrows the first error of any task; the lane then runs no
  // further ones.
  void wait(int64_t ticket);
  // Returns when no task is running and none will be: all have ended, or one has failed, which wait() tells.
  void drain();
  // Has the thread look for tasks that were started without waking it.
  void wake();

 private:
  void work(int rank);
  bool has_next() const { return num_ended_ < num_started_ && !is_running_ && !error_; }
  // Runs the next task with the lock given up.
  void run_next(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable ended_;
  std::array<Task, kMaxPending> tasks_{};
  int64_t num_started_ = 0;
  int64_t num_ended_ = 0;
  bool is_running_ = false;  // a task, on either thread
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

// CommLanes are the lanes of a rank, by their number (ir::lane_of).
class CommLanes {
 public:
  explicit CommLanes(int rank) : lanes_{CommLane(rank), CommLane(rank)} {}
  CommLane& operator[](int64_t number) { return lanes_[static_cast<size_t>(number)]; }
  // Returns when all of them are drained. A task of one may wait, by way of other ranks, for one of another.
  void drain();

 private:
  std::array<CommLane, ir::kNumCommLanes> lanes_;
};

}  // namespace tessera::executor
