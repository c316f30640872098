// JobState: what a process knows about the other ranks of its job: whether one failed, and which ones have left. Shared
// by all waits of the process; every wait looks at it, so that none outlives a failed peer. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/rank_notes.h"

namespace tessera::comm {

// Another rank's failure, seen by this one.
class PeerFailure : public IoError {
 public:
  PeerFailure(int rank, const std::string& message) : IoError(message), rank_(rank) {}
  // World rank of the rank that failed first.
  int rank() const { return rank_; }

 private:
  int rank_;
};

// Another rank that was waited for too long: it works, hangs, has been stopped, or its host has gone.
class PeerSilence : public IoError {
 public:
  explicit PeerSilence(const std::string& message) : IoError(message) {}
};

class JobState {
 public:
  explicit JobState(int size)
      : left_(static_cast<size_t>(size)), threads_(static_cast<size_t>(size)), notes_(static_cast<size_t>(size)) {}

  // Records that `rank` failed with `message`; the first report counts, later ones are dropped.
  void fail(int rank, const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    failed_rank_ = rank;
    message_ = message;
    failed_.store(true, std::memory_order_release);
    for (const auto& [number, listener] : listeners_) listener();
  }
  // Records that `rank` has ended well: it will make no more calls.
  void leave(int rank) {
    left_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    for (const auto& [number, listener] : listeners_) listener();
  }
  // Records that all ranks have ended well.
  void end() { ended_.store(true, std::memory_order_release); }
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }

  // Lets the listeners look at their waits.
  void wake() {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, listener] : listeners_) listener();
  }

  // `listener` is called, from any thread, whenever a rank fails or leaves, and now and then, for waits that cannot
  // look by themselves. It must not call this object. Returns its number for remove_listener(), after which it is not
  // called any more.
  int add_listener(std::function<void()> listener) {
    const std::lock_guard lock(mutex_);
    listeners_.emplace(++last_listener_, std::move(listener));
    return last_listener_;
  }
  void remove_listener(int number) {
    const std::lock_guard lock(mutex_);
    listeners_.erase(number);
  }

  // Where ranks wait, as far as this process sees it: `probe(rank, peer, driver)` says in which call and group `peer`
  // waits for `rank`, which has not made that call, or "" where it does not; `driver` is that of the group in which
  // `rank` waits. It must not block. Returns its number for remove_wait_probe(), after which it is not called any more.
  using WaitProbe = std::function<std::string(int rank, int peer, Communicator::Driver driver)>;
  int add_wait_probe(WaitProbe probe) {
    const std::lock_guard lock(probes_mutex_);
    wait_probes_.emplace(++last_wait_probe_, std::move(probe));
    return last_wait_probe_;
  }
  void remove_wait_probe(int number) {
    const std::lock_guard lock(probes_mutex_);
    wait_probes_.erase(number);
  }
  // What the first of them says.
  std::string find_wait(int rank, int peer, Communicator::Driver driver) const {
    const std::lock_guard lock(probes_mutex_);
    for (const auto& [number, probe] : wait_probes_) {
      if (auto found = probe(rank, peer, driver); !found.empty()) return found;
    }
    return {};
  }

  // What the ranks of this process do, for others that wait for them: in which calls they wait long themselves, and the
  // thread that makes a rank's calls; 0 where it is not known. `waited_ms`, which grows, outlives the wait.
  int add_long_wait(LongWait wait, const std::atomic<int64_t>& waited_ms) {
    const std::lock_guard lock(waits_mutex_);
    long_waits_.emplace(++last_long_wait_, std::pair(std::move(wait), &waited_ms));
    return last_long_wait_;
  }
  void remove_long_wait(int number) {
    const std::lock_guard lock(waits_mutex_);
    long_waits_.erase(number);
  }
  std::vector<LongWait> long_waits_of(int rank) const {
    const std::lock_guard lock(waits_mutex_);
    std::vector<LongWait> found;
    for (const auto& [number, wait] : long_waits_) {
      if (wait.first.rank != rank) continue;
      found.push_back(wait.first);
      found.back().waited_ms = wait.second->load(std::memory_order_relaxed);
    }
    return found;
  }
  // The rank is one of this process's: it has notes from then on.
  void set_thread(int rank, int thread) {
    {
      const std::lock_guard lock(notes_mutex_);
      auto& notes = notes_[static_cast<size_t>(rank)];
      if (notes == nullptr) notes = std::make_unique<RankNotes>();
    }
    threads_[static_cast<size_t>(rank)].store(thread);
  }
  int thread_of(int rank) const { return threads_[static_cast<size_t>(rank)].load(); }
  // Null where the rank is none of this process's.
  RankNotes* notes_of(int rank) const {
    const std::lock_guard lock(notes_mutex_);
    return notes_[static_cast<size_t>(rank)].get();
  }

  // `report` is called, by the thread that waits, once for each wait that has become too long to say nothing. Set
  // before the first call of a rank; it must not throw.
  void set_late_report(std::function<void(const LongWait&)> report) { late_report_ = std::move(report); }
  void report_late(const LongWait& wait) const {
    if (late_report_) late_report_(wait);
  }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool has_left(int rank) const { return left_[static_cast<size_t>(rank)].load(std::memory_order_acquire); }
  int size() const { return static_cast<int>(left_.size()); }

  // Both are defined once failed().
  int failed_rank() const {
    const std::lock_guard lock(mutex_);
    return failed_rank_;
  }
  std::string message() const {
    const std::lock_guard lock(mutex_);
    return message_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  int failed_rank_ = -1;
  std::string message_;
  std::map<int, std::function<void()>> listeners_;
  int last_listener_ = 0;
  mutable std::mutex probes_mutex_;
  std::map<int, WaitProbe> wait_probes_;
  int last_wait_probe_ = 0;
  mutable std::mutex waits_mutex_;
  std::map<int, std::pair<LongWait, const std::atomic<int64_t>*>> long_waits_;
  int last_long_wait_ = 0;
  std::function<void(const LongWait&)> late_report_;
  std::vector<std::atomic<bool>> left_;
  std::vector<std::atomic<int>> threads_;  // by rank
  mutable std::mutex notes_mutex_;
  std::vector<std::unique_ptr<RankNotes>> notes_;  // by rank
  std::atomic<bool> ended_{false};
};

// Calls a function as add_listener() says, as long as this lives.
class JobListener {
 public:
  JobListener(JobState& job, std::function<void()> listener)
      : job_(job), number_(job.add_listener(std::move(listener))) {}
  ~JobListener() { job_.remove_listener(number_); }
  JobListener(const JobListener&) = delete;
  JobListener& operator=(const JobListener&) = delete;

 private:
  JobState& job_;
  int number_;
};

}  // namespace tessera::comm
