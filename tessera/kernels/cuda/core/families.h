// The families of generated kernels, one file or room each; only generated_kernels() calls these.
#pragma once

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

void add_elementwise(KernelRegistry& registry, Gpu& gpu);
void add_reductions(KernelRegistry& registry, Gpu& gpu);
void add_shape_ops(KernelRegistry& registry, Gpu& gpu);
void add_creation(KernelRegistry& registry, Gpu& gpu);
void add_indexing(KernelRegistry& registry, Gpu& gpu);
void add_matmul(KernelRegistry& registry, Gpu& gpu);
void add_convolution(KernelRegistry& registry, Gpu& gpu);
void add_pooling(KernelRegistry& registry, Gpu& gpu);
void add_batch_norm(KernelRegistry& registry, Gpu& gpu);
void add_layer_norm(KernelRegistry& registry, Gpu& gpu);
void add_softmax(KernelRegistry& registry, Gpu& gpu);
void add_optimizers(KernelRegistry& registry, Gpu& gpu);
void add_attention(KernelRegistry& registry, Gpu& gpu);

}  // namespace tessera::cuda
