// Signals that end this process, and what it writes before: for a fault of its own (SIGSEGV, SIGFPE, SIGILL, SIGABRT),
// or SIGTERM. The process then ends by the signal, as it would have without.
#pragma once

#include <optional>

namespace tessera::cluster {

// While a FaultSignals lives, such a signal is told to a thread, for which it waits up to a second. SIGTERM that
// somebody else handles or ignores stays as it is, and what else handles a fault comes behind. A process has one;
// others do nothing.
class FaultSignals {
 public:
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
  // Lets the process end: all is written.
  void let_end();

 private:
  bool is_ours_ = false;
};

}  // namespace tessera::cluster
