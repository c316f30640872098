#include "tessera/cluster/report/fault_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace tessera::cluster {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTERM};
constexpr long kLookNs = FaultSignals::kLookMs * 1'000'000L;

// A process has one handler of a signal.
struct Handling {
  std::mutex mutex;
  bool is_used = false;
  std::array<struct sigaction, kSignals.size()> before{};  // written while nothing is handled
  std::array<bool, kSignals.size()> is_handled{};
  std::atomic<int> wake_fd{-1};
  std::atomic<pid_t> process{-1};
  std::atomic<int> number{0};
  std::atomic<int> thread{0};
  std::atomic<int> looks{0};
  std::atomic<bool> may_end{false};
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
Handling handling;

void restore(int number) {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == number) sigaction(number, &handling.before[i], nullptr);
  }
}

// Makes system calls only. The thread that writes may need a lock that this one holds: then it is given up.
void tell_and_end(int number) {
  const int error = errno;
  int none = 0;
  // A child by fork() has no such thread.
  const bool is_first = handling.process.load() == getpid() && handling.number.compare_exchange_strong(none, number);
  if (is_first) {
    handling.thread.store(gettid());
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(handling.wake_fd.load(), &one, sizeof(one));
    while (!handling.may_end.load() && handling.looks.fetch_add(1) < FaultSignals::kMostLooks) {
      const timespec pause{0, kLookNs};
      nanosleep(&pause, nullptr);
    }
  }
  restore(number);
  errno = error;
  raise(number);  // once this handler has returned
}

}  // namespace

FaultSignals::FaultSignals(int wake_fd) {
  const std::lock_guard lock(handling.mutex);
  if (handling.is_used) return;
  is_ours_ = handling.is_used = true;
  handling.wake_fd = wake_fd;
  handling.process = getpid();
  handling.number = 0;
  handling.looks = 0;
  handling.may_end = false;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    const int number = kSignals[i];
    handling.is_handled[i] = sigaction(number, nullptr, &handling.before[i]) == 0 &&
                             (number != SIGTERM || handling.before[i].sa_handler == SIG_DFL);
    if (!handling.is_handled[i]) continue;
    struct sigaction action {};
    action.sa_handler = tell_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

FaultSignals::~FaultSignals() {
  if (!is_ours_) return;
  const std::lock_guard lock(handling.mutex);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    const bool is_here = handling.is_handled[i] && sigaction(kSignals[i], nullptr, &now) == 0;
    if (is_here && now.sa_handler == tell_and_end) sigaction(kSignals[i], &handling.before[i], nullptr);
  }
  handling.may_end = true;
  handling.process = -1;
  handling.is_used = false;
}

std::optional<FaultSignals::Taken> FaultSignals::taken() const {
  const int number = is_ours_ ? handling.number.load() : 0;
  if (number == 0) return std::nullopt;
  return Taken{number, handling.thread.load()};
}

void FaultSignals::gets_on() { handling.looks = 0; }

void FaultSignals::let_end() { handling.may_end = true; }

int FaultSignals::num_looks() { return handling.looks.load(); }

}  // namespace tessera::cluster
