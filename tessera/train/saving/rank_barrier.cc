#include "tessera/train/saving/rank_barrier.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/comm/job_state.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::train {
namespace {

// Work on a thread of its own, or on this one where the system has no room for another: the other ranks have begun to
// wait for this one, and do so up to their deadline.
class Work {
 public:
  using AwaitTurn = FunctionRef<void()>;

  Work(comm::Communicator& group, int64_t num_turns, FunctionRef<void()> turn, FunctionRef<void(AwaitTurn)> work)
      : group_(group), turns_left_(num_turns), turn_(turn), work_(work) {}
  ~Work() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_given_up_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Throws what the work threw, once all ranks have done theirs.
  void run() {
    try {
      thread_ = start_thread("saving while other ranks wait", [this] { run_work([this] { await_turn(); }); });
    } catch (const IoError& error) {
      log_warning("{}; saving goes on without, and the other ranks hear nothing meanwhile", error.what());
      run_work([this] {
        for (const auto before = turns_left_; turns_left_ == before;) meet(State::kWaits);
      });
    }
    while (meet(state_soon())) {
    }
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  enum class State : int64_t { kEnded, kWaits, kWorks };

  void run_work(AwaitTurn await_turn) {
    try {
      work_(await_turn);
    } catch (...) {
      error_ = std::current_exception();
    }
    set(State::kEnded);
  }

  void set(State state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    changed_.notify_all();
  }
  // After a while at most that is short beside any deadline.
  State state_soon() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return state_ != State::kWorks; });
    return state_;
  }
  void await_turn() {
    set(State::kWaits);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::kWaits || is_given_up_; });
    if (is_given_up_) throw IoError("the work was given up: the ranks did not all go on");
  }

  // All ranks meet, and take a turn if none works. Returns whether they are to meet again.
  bool meet(State own) {
    auto busiest = static_cast<int64_t>(own);
    group_.all_reduce(&busiest, 1, DType::kI64, comm::ReduceOp::kMax, kCheckpointCalls);
    if (busiest == static_cast<int64_t>(State::kWorks)) return true;
    if (turns_left_ == 0) {
      check(busiest == static_cast<int64_t>(State::kEnded), "work on some rank waits for a turn more than there are");
      return false;
    }
    turn_();
    --turns_left_;
    if (own == State::kWaits) set(State::kWorks);
    return true;
  }

  comm::Communicator& group_;
  int64_t turns_left_;
  FunctionRef<void()> turn_;
  FunctionRef<void(AwaitTurn)> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kWorks;
  bool is_given_up_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

std::vector<std::string> RankBarrier::exchange(const std::string& mine) {
  return session::gather_texts(group_, mine, kCheckpointCalls);
}

void RankBarrier::run_long(FunctionRef<void()> work) {
  if (group_.size() == 1) return work();
  run_in_turns(
      0, [] {}, [&](FunctionRef<void()>) { work(); });
}

void RankBarrier::throw_failure_of(int rank, const std::string& message) const {
  throw comm::PeerFailure(group_.ranks()[static_cast<size_t>(rank)], message);
}

void RankBarrier::run_in_turns(int64_t num_turns, FunctionRef<void()> turn,
                               FunctionRef<void(FunctionRef<void()> await_turn)> work) {
  Work(group_, num_turns, turn, work).run();
}

}  // namespace tessera::train
