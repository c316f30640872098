#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/full.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {

// Each rank has a device of its own, which communicates with those of the others.
session::SessionOptions session_there(bool plain_loops) {
  static FakeDevice device(/*seed=*/17);
  static FakeCommunicators communicators;
  static const kernels::Backend kPlain = fake_backend(device, /*plain_loops=*/true, &communicators);
  static const kernels::Backend kFast = fake_backend(device, /*plain_loops=*/false, &communicators);
  session::SessionOptions options{.backend = plain_loops ? &kPlain : &kFast, .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

size_t stride_there() { return is_full_test() ? 1 : 9; }

}  // namespace tessera::equivalence
