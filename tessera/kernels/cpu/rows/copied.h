// Kernels that want channels-last images, for images that lie otherwise: those are copied on their way in and out.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

// The factory's kernel for the request with all images channels-last, operands and results of 3 dims and more;
// nullopt where they are already, or where that does not help.
std::optional<PreparedKernel> prepare_copied(const KernelRequest& request, const KernelFactory& factory);

}  // namespace tessera::kernels::cpu
