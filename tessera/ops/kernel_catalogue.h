// KernelCatalogue: what the compiler sees of the kernels. executor/ implements it over the live registries; goldens use
// a fake, so that they depend on no machine.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/kernel.h"

namespace tessera::ops {

struct ChosenKernel {
  std::string name;
  int64_t scratch_bytes = 0;
  std::vector<std::pair<int, int>> in_place;  // (input, output) pairs that may share memory
  bool on_host = false;  // the device has no kernel for the request: the host computes it, in its own memory
};

class KernelCatalogue {
 public:
  virtual ~KernelCatalogue() = default;
  // The kernel that will run the request. Throws InvalidArgument naming operator and types when there is none.
  virtual ChosenKernel choose(const KernelRequest& request) const = 0;
  // Threads that kernels will compute with.
  virtual int num_threads() const = 0;
};

// Takes every request, says "fake.<op>", 0 bytes of scratch; elementwise operators and optimizers may work in place.
class FakeKernelCatalogue : public KernelCatalogue {
 public:
  ChosenKernel choose(const KernelRequest& request) const override;
  int num_threads() const override { return 1; }
};

}  // namespace tessera::ops
