// Every kernel of a GPU against the reference's, for all examples of its operator's definition, on operands in three
// orders of memory: those of libraries, where they take the example, and the generated ones.
#include "tessera/kernels/cuda/cuda_backend.h"
#include "tests/devices/device_kernels.h"

namespace tessera::devices {
namespace {

class CudaKernels : public testing::TestWithParam<generated::OpCall> {};

TEST_P(CudaKernels, AgreeWithTheReference) {
  const kernels::Backend& backend = cuda::cuda_backend(0);
  for (const auto order : kernels::kStrideOrders) {
    for (const KernelRegistry* registry : backend.registries) {
      const bool must_take = registry == backend.registries.back();
      if (!must_take && !registry->find(request_of(GetParam(), order))) continue;
      compare({*registry, *backend.device}, GetParam(), order);
      if (HasFailure()) {
        ADD_FAILURE() << "in order " << static_cast<int>(order) << (must_take ? ", generated" : ", of a library");
        return;
      }
    }
  }
}

// One device has one memory and one set of collectives, whatever ways its libraries take.
TEST(CudaBackend, IsOfOneDeviceWhetherItsLibrariesMeasureOrNot) {
  const kernels::Backend& measuring = cuda::cuda_backend(0);
  const kernels::Backend& deterministic = cuda::cuda_backend(0, /*is_deterministic=*/true);
  EXPECT_EQ(&deterministic, &cuda::cuda_backend(0, /*is_deterministic=*/true));
  EXPECT_EQ(deterministic.device, measuring.device);
  EXPECT_EQ(deterministic.communicators, measuring.communicators);
  EXPECT_EQ(deterministic.registries.back(), measuring.registries.back());
  ASSERT_EQ(deterministic.registries.size(), measuring.registries.size());
}

// What a product and a convolution give in deterministic ways is what the reference gives.
TEST(CudaBackend, AgreesWithTheReferenceInDeterministicWays) {
  const kernels::Backend& backend = cuda::cuda_backend(0, /*is_deterministic=*/true);
  int num_taken = 0;
  for (const auto& call : generated::all_calls()) {
    for (const auto order : kernels::kStrideOrders) {
      if (!backend.registries.front()->find(request_of(call, order))) continue;
      compare({*backend.registries.front(), *backend.device}, call, order);
      ++num_taken;
    }
  }
  EXPECT_GT(num_taken, 0);
}

std::string name_of(const testing::TestParamInfo<generated::OpCall>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, CudaKernels, testing::ValuesIn(generated::all_calls()), name_of);

}  // namespace
}  // namespace tessera::devices
