// Signals that end this process, and what it writes before: for a fault of its own (SIGSEGV, SIGFPE, SIGILL, SIGABRT),
// or SIGTERM. The process then ends by the signal, as it would have without.
#pragma once

#include <optional>

namespace tessera::cluster {

// While a FaultSignals lives, such a signal is told to a thread, which writes; the process is held until it lets go. It
// is held no longer than kMostLooks looks after the latest that was seen of that thread: what the signal has
// interrupted may hold a lock that the thread needs. SIGTERM that somebody else handles or ignores stays as it is, and
// what else handles a fault comes behind. A process has one; others do nothing.
class FaultSignals {
 public:
  // 2.5 seconds: half a second less than a launcher leaves a rank that it has told to end (LaunchOptions::grace_ms), so
  // that a rank whose thread hangs still ends by its own signal.
  static constexpr int kLookMs = 10;
  static constexpr int kMostLooks = 250;

  // `wake_fd` is an eventfd that the thread waits for. It outlives this.
  explicit FaultSignals(int wake_fd);
  ~FaultSignals();
  FaultSignals(const FaultSignals&) = delete;
  FaultSignals& operator=(const FaultSignals&) = delete;

  struct Taken {
    int number = 0;
    int thread = 0;  // that it came to
  };
  // The signal that has come; nothing while none has.
  std::optional<Taken> taken() const;
  // Some of it is written, the rest comes: the process is held for as long again.
  void gets_on();
  // Lets the process end: all is written.
  void let_end();
  // How often it was looked for this since the signal came, or since gets_on().
  static int num_looks();

 private:
  bool is_ours_ = false;
};

}  // namespace tessera::cluster
