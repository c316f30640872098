// Every operator's generated kernel on the emulated device against the reference's, for the examples of its definition,
// on operands in three orders of memory.
#include "tessera/testing/devices/emulated_gpu.h"
#include "tessera/testing/full.h"
#include "tests/devices/device_kernels.h"

namespace tessera::devices {
namespace {

class GeneratedKernels : public testing::TestWithParam<generated::OpCall> {};

TEST_P(GeneratedKernels, AgreeWithTheReference) {
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

// Each is compiled by the host's compiler first: the first example of every operator and a third of the others, where
// not all shall run.
std::vector<generated::OpCall> calls() {
  auto all = generated::all_calls();
  if (is_full_test()) return all;
  std::erase_if(all, [](const generated::OpCall& call) {
    return call.number > 0 && (static_cast<uint64_t>(call.number) + hash_name(call.def->name)) % 3 != 0;
  });
  return all;
}

std::string name_of(const testing::TestParamInfo<generated::OpCall>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, GeneratedKernels, testing::ValuesIn(calls()), name_of);

}  // namespace
}  // namespace tessera::devices
