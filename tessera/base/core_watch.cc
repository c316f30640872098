#include "tessera/base/core_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <omp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"

namespace tessera {
namespace {

constexpr int64_t kLookEveryNs = 100'000'000;
// Parts of the time in which threads had work that they waited for a core: from the first on the machine is busy, below
// the second, so many looks in a row, it is not. Threads that sleep wait less than threads that spin.
constexpr double kBusy = 0.1;
constexpr double kQuiet = 0.03;
constexpr int kQuietLooks = 5;

}  // namespace

// Asked between steps, which allocate nothing: so it reads the system's bytes into its own.
std::optional<ThreadTimes> thread_times() {
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return std::nullopt;
  ThreadTimes all;
  alignas(dirent64) char entries[4096];
  for (long size; (size = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0;) {
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      if (entry->d_name[0] == '.') continue;
      char path[32];
      std::snprintf(path, sizeof(path), "%.16s/schedstat", entry->d_name);
      const int file = openat(folder, path, O_RDONLY | O_CLOEXEC);
      if (file < 0) continue;  // it has ended
      char text[64];
      const ssize_t length = read(file, text, sizeof(text) - 1);
      close(file);
      if (length <= 0) continue;
      text[length] = '\0';
      char* rest = nullptr;
      all.running_ns += std::strtoll(text, &rest, 10);
      all.waiting_ns += std::strtoll(rest, nullptr, 10);
    }
  }
  close(folder);
  if (all.running_ns == 0) return std::nullopt;
  return all;
}

int64_t count_preemptions() {
  struct rusage usage {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

bool waiting_is_chosen() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

class CoreWatch::Sleepers {
 public:
  // Throws IoError where there is no room for the threads.
  Sleepers() {
    const int wanted = omp_get_num_procs() + 1;
    // OpenMP ends the process where it cannot start a thread.
    if (count_startable_threads(wanted) < wanted) throw IoError("no room for {} threads", wanted);
    team_ = start_thread("waiting on a busy machine", [this, wanted] {
#pragma omp parallel num_threads(wanted)
      end_.wait(false);
    });
  }
  ~Sleepers() {
    end_ = true;
    end_.notify_all();
    team_.join();
  }
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

 private:
  std::atomic<bool> end_ = false;
  std::thread team_;
};

CoreWatch::CoreWatch(Clock& clock, std::function<std::optional<ThreadTimes>()> times)
    : clock_(clock), times_(std::move(times)) {
  next_look_ns_ = clock_.monotonic_ns();
}

CoreWatch::~CoreWatch() = default;

void CoreWatch::look() {
  const int64_t now = clock_.monotonic_ns();
  if (now < next_look_ns_ || !has_room_) return;
  next_look_ns_ = now + kLookEveryNs;
  const auto times = times_();
  if (!times) return;
  const int64_t running = times->running_ns - last_.running_ns;
  const int64_t waiting = times->waiting_ns - last_.waiting_ns;
  const bool is_first = last_.running_ns == 0;
  last_ = *times;
  // Threads that have ended since the last look took their times with them.
  if (is_first || running <= 0 || waiting < 0) return;
  const double share = static_cast<double>(waiting) / static_cast<double>(running + waiting);
  quiet_looks_ = share < kQuiet ? quiet_looks_ + 1 : 0;
  if (sleepers_ == nullptr && share > kBusy) {
    log_debug("threads wait for cores in {:.0f} % of the time: they sleep where they spun before", 100 * share);
    try {
      sleepers_ = std::make_unique<Sleepers>();
    } catch (const Error& error) {
      has_room_ = false;
      log_debug("threads go on spinning: {}", error.what());
    }
  } else if (sleepers_ != nullptr && quiet_looks_ >= kQuietLooks) {
    log_debug("cores are free: threads spin again");
    sleepers_.reset();
  }
}

}  // namespace tessera
