// Every operator's generated kernel on the emulated device against the reference's, for the examples of its definition,
// on operands in three orders of memory.
#include "tessera/testing/devices/emulated_gpu.h"
#include "tessera/testing/full.h"
#include "tests/devices/device_kernels.h"

namespace tessera::devices {
namespace {

class GeneratedKernels : public testing::TestWithParam<generated::OpCall> {};

TEST_P(GeneratedKernels, AgreeWithTheReference) {
  // Each is compiled by the host's compiler first: a third of them, of every operator, where not all shall run.
  const auto& call = GetParam();
  if (!is_full_test() && call.number > 0 && (static_cast<uint64_t>(call.number) + hash_name(call.def->name)) % 3 != 0)
    return;
  static FakeDevice device(/*seed=*/5);
  const kernels::Backend backend = emulated_backend(device);
  for (const auto order : kernels::kStrideOrders) {
    compare({*backend.registries[0], device}, GetParam(), order);
    if (HasFailure()) {
      ADD_FAILURE() << "in order " << static_cast<int>(order);
      return;
    }
  }
}

std::string name_of(const testing::TestParamInfo<generated::OpCall>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, GeneratedKernels, testing::ValuesIn(generated::all_calls()), name_of);

}  // namespace
}  // namespace tessera::devices
