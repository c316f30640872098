#include "tessera/testing/full.h"
#include "tests/devices/shared_fake.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {

// All ranks on one device, which tell each other through its memory.
session::SessionOptions session_there(bool plain_loops) {
  static devices::SharedFake plain(/*seed=*/17, /*plain_loops=*/true);
  static devices::SharedFake fast(/*seed=*/19);
  session::SessionOptions options{.backend = plain_loops ? &plain.backend : &fast.backend, .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

size_t stride_there() { return is_full_test() ? 1 : 9; }

}  // namespace tessera::equivalence
