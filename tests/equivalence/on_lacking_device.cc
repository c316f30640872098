// The fake device without matrix products, convolutions' gradients, sums and updates, which the host computes.
#include <set>
#include <string>

#include "tessera/base/logging.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/full.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

KernelRegistry without_some(const kernels::Backend& backend) {
  static const std::set<std::string> kLacking = {"matmul",     "batch_matmul", "conv2d_grad_weight", "gather",
                                                 "reduce_sum", "momentum",     "update_group",       "all_finite"};
  return some_kernels(backend, [](const KernelRequest& request) { return !kLacking.contains(request.op); });
}

kernels::Backend with_registry(kernels::Backend backend, const KernelRegistry& registry) {
  backend.registries = {&registry};
  return backend;
}

}  // namespace

session::SessionOptions session_there(bool plain_loops) {
  set_log_level(LogLevel::kError);  // what the host computes is said for each operator
  static FakeDevice device(/*seed=*/17);
  static const KernelRegistry kPlainLoops = without_some(fake_backend(device, /*plain_loops=*/true));
  static const KernelRegistry kFastKernels = without_some(fake_backend(device));
  static const kernels::Backend kPlain = with_registry(fake_backend(device), kPlainLoops);
  static const kernels::Backend kFast = with_registry(fake_backend(device), kFastKernels);
  session::SessionOptions options{.backend = plain_loops ? &kPlain : &kFast, .cpu_fallback = true, .num_threads = 1};
  if (plain_loops) options.fusions = compiler::Fusions::none();
  return options;
}

size_t stride_there() { return is_full_test() ? 3 : 13; }

}  // namespace tessera::equivalence
