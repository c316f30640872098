#include <gtest/gtest.h>

#include <cstdio>

#include "tessera/kernels/cuda/cuda_backend.h"
#include "tessera/kernels/sharing/shared_device.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

// For whoever wants to know whether ranks have told each other through the device's memory (scripts/gpu_proof).
class TellsCalls final : public testing::Environment {
 public:
  void TearDown() override {
    const auto* const shared = dynamic_cast<kernels::SharedDevice*>(cuda::cuda_backend(0).within_device);
    std::printf("%lld calls of ranks through the memory of cuda:0\n",
                shared == nullptr ? 0LL : static_cast<long long>(shared->num_calls()));
    std::fflush(stdout);
  }
};

[[maybe_unused]] const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new TellsCalls);

}  // namespace

// All ranks on one device, with its kernels whatever is asked for.
session::SessionOptions session_there(bool plain_loops) {
  session::SessionOptions options{.device = "cuda:0", .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

size_t stride_there() { return 5; }

}  // namespace tessera::equivalence
