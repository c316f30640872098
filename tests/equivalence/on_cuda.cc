#include "tests/equivalence/where.h"

namespace tessera::equivalence {

// All ranks on one device, with its kernels whatever is asked for.
session::SessionOptions session_there(bool plain_loops) {
  session::SessionOptions options{.device = "cuda:0", .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

size_t stride_there() { return 5; }

}  // namespace tessera::equivalence
