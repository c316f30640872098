// The reference matmul, for kernels of this folder that are a product and something more.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::reference {

// As registered for "matmul": two inputs, of which each is read transposed where its flag says so; the result is of
// their dtype, or f32 where they are of a half type.
std::optional<PreparedKernel> prepare_matmul(const KernelRequest& request);

}  // namespace tessera::kernels::reference
