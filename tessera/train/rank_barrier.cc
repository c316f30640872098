#include "tessera/train/rank_barrier.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/session/gather_texts.h"

namespace tessera::train {
namespace {

constexpr const char* kWho = "checkpoint";

// A function call on a thread of its own, or on this one where the system has no room for another: the other ranks have
// begun to wait for this one, and do so up to their deadline.
class Work {
 public:
  explicit Work(FunctionRef<void()> work) {
    try {
      thread_ = start_thread("saving while other ranks wait", [this, work] { run(work); });
    } catch (const IoError& error) {
      log_warning("{}; saving goes on without, and the other ranks hear nothing meanwhile", error.what());
      run(work);
    }
  }
  ~Work() {
    if (thread_.joinable()) thread_.join();
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Whether it is done, after a while at most that is short beside any deadline.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return is_done_; });
  }
  // Throws what the call threw.
  void finish() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void run(FunctionRef<void()> work) {
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

std::vector<std::string> RankBarrier::exchange(const std::string& mine) {
  return session::gather_texts(group_, mine, kWho);
}

void RankBarrier::run_long(FunctionRef<void()> work) {
  if (group_.size() == 1) return work();
  Work own(work);
  int64_t busy = 1;
  while (busy != 0) {
    busy = own.wait() ? 0 : 1;
    group_.all_reduce(&busy, 1, DType::kI64, comm::ReduceOp::kMax, kWho);
  }
  own.finish();
}

}  // namespace tessera::train
