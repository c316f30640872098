// The reference kernels' families, one .cc each; only reference_kernels() calls these.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::reference {

void add_attention(KernelRegistry& registry);
void add_elementwise(KernelRegistry& registry);
void add_reductions(KernelRegistry& registry);
void add_shape_ops(KernelRegistry& registry);
void add_creation(KernelRegistry& registry);
void add_indexing(KernelRegistry& registry);
void add_matmul(KernelRegistry& registry);
void add_convolution(KernelRegistry& registry);
void add_pooling(KernelRegistry& registry);
void add_normalization(KernelRegistry& registry);
void add_softmax(KernelRegistry& registry);
void add_optimizers(KernelRegistry& registry);
void add_fused(KernelRegistry& registry);
void add_fused_norms(KernelRegistry& registry);

}  // namespace tessera::kernels::reference
