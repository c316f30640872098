#include "tessera/base/core_watch.h"

#include <omp.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

std::optional<ThreadTimes> thread_times() {
  ThreadTimes all;
  std::error_code error;
  std::filesystem::directory_iterator tasks("/proc/self/task", error);
  for (; !error && tasks != std::filesystem::directory_iterator(); tasks.increment(error)) {
    std::ifstream file(tasks->path() / "schedstat");
    ThreadTimes one;
    if (!(file >> one.running_ns >> one.waiting_ns)) continue;  // it has ended
    all.running_ns += one.running_ns;
    all.waiting_ns += one.waiting_ns;
  }
  if (error || all.running_ns == 0) return std::nullopt;
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
