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

std::string name_of(const testing::TestParamInfo<generated::OpCall>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, CudaKernels, testing::ValuesIn(generated::all_calls()), name_of);

}  // namespace
}  // namespace tessera::devices
