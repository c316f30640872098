// It is part of programs whose tests need a GPU of NVIDIA: where there is none, it skips them all, and says why.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/cuda_backend.h"

namespace tessera::devices {
namespace {

class NeedsCuda final : public testing::Environment {
 public:
  void SetUp() override {
    try {
      cuda::cuda_backend(0);
    } catch (const IoError& error) {
      std::printf("skipped: all of this program: %s\n0 passed, 0 failed, 1 skipped\n", error.what());
      std::fflush(stdout);
      std::_Exit(0);
    }
  }
};

[[maybe_unused]] const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new NeedsCuda);

}  // namespace
}  // namespace tessera::devices
