// UsageError: the command line asks for what cannot be: a value outside of an option's domain, a network that is not
// known, an option that has no effect beside the others. The command ends with exit code 2. What fails at work, such as
// a file that is not there, is any other error and ends it with 1.
#pragma once

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

class UsageError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// What f() returns. Throws UsageError in place of the InvalidArgument that f throws: f reads a value of the command
// line.
template <typename F>
auto from_command_line(const F& f) {
  try {
    return f();
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace tessera::tools
