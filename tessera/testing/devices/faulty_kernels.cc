#include "tessera/testing/devices/faulty_kernels.h"

#include <cstddef>
#include <utility>

namespace tessera {

FaultyKernels::FaultyKernels(const std::string& op, int64_t call) : call_(call) {
  registry_.add(op, [this](const KernelRequest& request) -> std::optional<PreparedKernel> {
    auto kernel = kernels::reference_kernels().find(request);
    if (!kernel) return std::nullopt;
    kernel->name = "faulty." + request.op;
    kernel->run = [this, run = std::move(kernel->run)](const KernelArgs& args) {
      run(args);
      const TensorView& result = args.outputs[0];
      if (++num_calls_ != call_ || result.num_elements() == 0) return;
      // Of a floating element, little-endian: one unit in the last place.
      *static_cast<std::byte*>(result.data) ^= std::byte{1};
    };
    return kernel;
  });
  backend_ = {.name = "cpu, plain loops with a fault",
              .registries = {&registry_, &kernels::reference_kernels()},
              .fusions = "none"};
}

}  // namespace tessera
