// What tests share: ranks as threads, crashes, and messages of what was thrown.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/checkpoint/lock/barrier.h"
#include "tessera/testing/checkpoints/crash_file_system.h"

namespace tessera::checkpoint {

// What the action threw, or "no error".
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A disk that does not give one file.
class BadSector : public MemoryFileSystem {
 public:
  std::string path;
  std::unique_ptr<ReadableFile> open(const std::string& opened) override {
    if (opened == path) throw IoError("{}: Input/output error", path);
    return MemoryFileSystem::open(opened);
  }
};

inline void overwrite(FileSystem& files, const std::string& path, const std::string& content) {
  files.create(path)->append(content);
}

// Calls f with every state that a crash may leave after each operation from `first` on.
inline int for_each_crash(const CrashFileSystem& recorded, size_t first,
                          const std::function<void(MemoryFileSystem&)>& f) {
  int states = 0;
  const auto run = [&](size_t count, Unsynced unsynced, uint64_t seed) {
    SCOPED_TRACE(fmt::format("after operation {} ({}), unsynced {}, seed {}", count, recorded.describe(count),
                             static_cast<int>(unsynced), seed));
    f(*recorded.crash_state(count, unsynced, seed));
    ++states;
  };
  for (size_t count = first; count <= recorded.num_operations(); ++count) {
    for (const auto unsynced : {Unsynced::kKept, Unsynced::kLost, Unsynced::kContentLost}) run(count, unsynced, 0);
    for (uint64_t seed = 0; seed < 20; ++seed) run(count, Unsynced::kRandom, seed);
  }
  return states;
}

// Whether this thread is in a Barrier's run_long.
inline thread_local bool is_in_long_run = false;

// Lets n ranks that are threads wait for each other.
class ThreadBarrier {
 public:
  explicit ThreadBarrier(int size) : given_(static_cast<size_t>(size)) {}

  class End : public Barrier {
   public:
    End(ThreadBarrier& owner, int rank) : owner_(owner), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(owner_.given_.size()); }
    std::vector<std::string> exchange(const std::string& mine) override { return owner_.exchange(rank_, mine); }
    void run_long(FunctionRef<void()> work) override {
      struct Mark {
        Mark() { is_in_long_run = true; }
        ~Mark() { is_in_long_run = false; }
      } const mark;
      work();
    }

   private:
    ThreadBarrier& owner_;
    int rank_;
  };

  // What each rank's f threw, or "no error".
  static std::vector<std::string> run(int size, const std::function<void(Barrier&)>& f) {
    ThreadBarrier barrier(size);
    std::vector<std::string> messages(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        End end(barrier, rank);
        messages[static_cast<size_t>(rank)] = message_of([&] { f(end); });
      });
    }
    for (auto& thread : threads) thread.join();
    return messages;
  }

 private:
  std::vector<std::string> exchange(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    given_[static_cast<size_t>(rank)] = mine;
    const int round = round_;
    if (++arrived_ == static_cast<int>(given_.size())) {
      result_ = given_;
      arrived_ = 0;
      ++round_;
      all_arrived_.notify_all();
    } else {
      all_arrived_.wait(lock, [&] { return round_ != round; });
    }
    return result_;
  }

  std::mutex mutex_;
  std::condition_variable all_arrived_;
  std::vector<std::string> given_;
  std::vector<std::string> result_;
  int arrived_ = 0;
  int round_ = 0;
};

}  // namespace tessera::checkpoint
