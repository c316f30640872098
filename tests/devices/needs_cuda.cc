// Part of programs whose tests need a GPU of NVIDIA: where there is none, all are skipped, by name.
#include <gtest/gtest.h>

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
      GTEST_SKIP() << error.what();
    }
  }
};

[[maybe_unused]] const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new NeedsCuda);

}  // namespace
}  // namespace tessera::devices
