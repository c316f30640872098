// UsageError: what the user has written for a process is wrong: a value outside of the domain of an option or an
// environment variable, a network that is not known, an option that has no effect beside the others. The process ends
// with cluster::kExitUsage. What fails at work, such as a file that is not there, is any other error.
#pragma once

#include "tessera/base/error.h"

namespace tessera {

class UsageError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// What f() returns. Throws UsageError in place of the InvalidArgument that f throws: f reads what the user has written
// on a command line or into a variable.
template <typename F>
auto from_user(const F& f) {
  try {
    return f();
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace tessera
