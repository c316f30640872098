#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/full.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {

session::SessionOptions session_there(bool plain_loops) {
  static FakeDevice device(/*seed=*/13);
  static const kernels::Backend kPlain = fake_backend(device, /*plain_loops=*/true);
  static const kernels::Backend kFast = fake_backend(device);
  session::SessionOptions options{.backend = plain_loops ? &kPlain : &kFast, .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

// The matrix as a whole takes several times as long as on the CPU: its queues are late.
size_t stride_there() { return is_full_test() ? 1 : 7; }

}  // namespace tessera::equivalence
