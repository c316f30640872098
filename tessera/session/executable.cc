#include "tessera/session/executable.h"

#include "tessera/base/error.h"
#include "tessera/executor/executor.h"

namespace tessera::session {

executor::Executor& Executable::executor() {
  throw InvalidArgument("a step of a pipeline has an executor for each phase and slot: it has none to look at");
}

}  // namespace tessera::session
