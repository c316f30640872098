// The kernels that are written as text for a GPU: one for every operator. What a library computes faster stands in
// front of them; see libraries/.
#pragma once

#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/tensor/kernel.h"

namespace tessera::cuda {

// The fusions whose nodes are worth it on a GPU: a product of matrices is a library's, which takes along what its
// epilogues compute; what else follows it is a kernel of its own.
inline constexpr const char* kFusions = "batch_norm_statistics,batch_norm,matmul_epilogues,elementwise,updates";

// The GPU outlives the registry and the kernels that it prepares.
KernelRegistry generated_kernels(Gpu& gpu);

}  // namespace tessera::cuda
