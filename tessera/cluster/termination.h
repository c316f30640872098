// SIGTERM as a request, as it comes when a machine is taken away: a training saves what would be lost, and then the
// process ends.
#pragma once

#include <csignal>

#include "tessera/base/error.h"

namespace tessera::cluster {

// Terminated is thrown by what was asked to end, once it has saved what it had. The rank's process then ends with
// kExitTerminated, as if the signal had ended it.
class Terminated : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitTerminated = 128 + SIGTERM;

// While a TerminationWatch lives, the first SIGTERM of the process is noted and does nothing else; a second one does
// what the first would have done. A program that handles SIGTERM itself, or ignores it, goes on to do so, and nothing
// is noted. Several may live, in any threads; all of them hear of the signal.
class TerminationWatch {
 public:
  TerminationWatch();
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

  bool has_come() const;
  // Says that the process ends because of the signal. A signal that nobody has answered when the last watch goes then
  // does what it would have done without a watch.
  void answer();
};

}  // namespace tessera::cluster
