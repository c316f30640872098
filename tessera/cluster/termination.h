// SIGTERM as a request: who trains saves what would be lost before the process ends, as a machine does that is taken
// away.
#pragma once

#include <csignal>

#include "tessera/base/error.h"

namespace tessera::cluster {

// What was asked to end has saved what it had, and ends. A rank's process ends with kExitTerminated then, as if the
// signal had ended it.
class Terminated : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitTerminated = 128 + SIGTERM;

// While one lives, the first SIGTERM of the process is noted and does nothing else; a second one does what the first
// would have done. A program that handles SIGTERM itself, or ignores it, goes on to do so, and nothing is noted.
// Several may live, in any threads; all of them hear of it.
class TerminationWatch {
 public:
  TerminationWatch();
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

  bool has_come() const;
  // The process ends because of it. A signal that has come and that nobody answers does, once the last of these is
  // gone, what it would have done without them.
  void answer();
};

}  // namespace tessera::cluster
