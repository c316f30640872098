// Every operator's generated kernel is compiled for an H100 by NVRTC, which needs no device: a sample of the examples
// of each operator's definition, all of them with TESSERA_TEST_FULL=1.
#include <gtest/gtest.h>

#include <set>
#include <string>

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

// The first example of every operator and a seventh of the others, where not all shall be compiled.
std::vector<generated::OpCall> calls() {
  auto all = generated::all_calls();
  // Of servers alone, which do without it on a device.
  const std::set<std::string> of_servers = {"add_up_rows", "list_rows", "spread_rows"};
  std::erase_if(all, [&](const generated::OpCall& call) { return of_servers.contains(call.def->name); });
  if (is_full_test()) return all;
  std::erase_if(all, [](const generated::OpCall& call) {
    return call.number > 0 && (static_cast<uint64_t>(call.number) + hash_name(call.def->name)) % 7 != 0;
  });
  return all;
}

std::string name_of(const testing::TestParamInfo<generated::OpCall>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, CompiledKernels, testing::ValuesIn(calls()), name_of);

}  // namespace
}  // namespace tessera::devices
