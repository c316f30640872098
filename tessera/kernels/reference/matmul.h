// The reference matmul, for kernels of this folder that are a product and something more.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::reference {

// The kernel that is registered for "matmul": it has two inputs, each of which is read transposed where its flag says
// so; the result has their dtype, or f32 where they are of a half type.
std::optional<PreparedKernel> prepare_matmul(const KernelRequest& request);

}  // namespace tessera::kernels::reference
