// argmax, top_k and its gradient, cumsum: what is not one number of many.
#pragma once

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

void add_selections(KernelRegistry& registry, Gpu& gpu);

}  // namespace tessera::cuda
