// The families of the CPU kernels, one .cc each; only cpu_kernels() calls these.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

void add_all_finite(KernelRegistry& registry);
void add_attention(KernelRegistry& registry);
void add_batch_norm(KernelRegistry& registry);
void add_copied_batch_norm(KernelRegistry& registry);  // for images that do not lie as add_batch_norm's do
void add_convolution(KernelRegistry& registry);
void add_matmul(KernelRegistry& registry);
void add_matmul_candidates(KernelRegistry& registry);
void add_matmul_convolution(KernelRegistry& registry);    // candidates
void add_winograd_convolution(KernelRegistry& registry);  // candidates
void add_elementwise(KernelRegistry& registry);
void add_fused_elementwise(KernelRegistry& registry);
void add_fused_matmul(KernelRegistry& registry);
void add_misc(KernelRegistry& registry);
void add_normalization(KernelRegistry& registry);
void add_optimizers(KernelRegistry& registry);
void add_pooling(KernelRegistry& registry);
void add_reductions(KernelRegistry& registry);
void add_row_kernels(KernelRegistry& registry);
void add_shape_ops(KernelRegistry& registry);

}  // namespace tessera::kernels::cpu
