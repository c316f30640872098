// Every operator's generated kernel is compiled for an H100 by NVRTC, which needs no device: a sample of the examples
// of each operator's definition, all of them with TESSERA_TEST_FULL=1.
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/compiled_kernel.h"
#include "tessera/testing/devices/dry_gpu.h"
#include "tessera/testing/full.h"
#include "tests/devices/device_kernels.h"

namespace tessera::devices {
namespace {

bool has_compiler() {
  static const bool has = [] {
    try {
      cuda::compiled_kernel("extern \"C\" __global__ void nothing() {}", "sm_90");
      return true;
    } catch (const IoError&) {
      return false;
    }
  }();
  return has;
}

class CompiledKernels : public testing::TestWithParam<generated::OpCall> {};

TEST_P(CompiledKernels, AreMachineCodeOfAnH100) {
  if (!has_compiler()) GTEST_SKIP() << "the compiler of CUDA 13's kernels is not here";
  const auto& call = GetParam();
  if (!is_full_test() && call.number % 7 != static_cast<int>(hash_name(call.def->name) % 7)) return;
  for (const auto order : kernels::kStrideOrders) {
    const auto kernel = dry_backend().registries[0]->find(request_of(call, order));
    ASSERT_TRUE(kernel.has_value()) << call.name();
    // A launch waits for the compiler, and throws what it says.
    const auto request = request_of(call, order);
    const auto queue = dry_backend().device->make_queue();
    const ParallelFor parallel_for(1);
    kernel->run({request.inputs, request.outputs, request.attributes, {}, parallel_for, queue.get()});
  }
}

std::string name_of(const testing::TestParamInfo<generated::OpCall>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, CompiledKernels, testing::ValuesIn(generated::all_calls()), name_of);

}  // namespace
}  // namespace tessera::devices
