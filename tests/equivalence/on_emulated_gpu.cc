#include "tessera/kernels/sharing/shared_device.h"
#include "tessera/testing/devices/emulated_gpu.h"
#include "tessera/testing/full.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {

session::SessionOptions session_there(bool plain_loops) {
  static FakeDevice device(/*seed=*/17);
  static kernels::BlocksOfProcess blocks(device);
  static kernels::SharedDevice shared(
      blocks, {.place = "the emulated GPU", .registries = emulated_backend(device).registries, .slot_bytes = 64 << 10});
  static const kernels::Backend backend = [] {
    auto made = emulated_backend(device);
    made.within_device = &shared;
    return made;
  }();
  session::SessionOptions options{.backend = &backend, .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

// Each kernel is compiled by the host's compiler first.
size_t stride_there() { return is_full_test() ? 3 : 61; }

}  // namespace tessera::equivalence
