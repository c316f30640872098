#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/cuda_kernels.h"

namespace tessera::cuda {

KernelRegistry generated_kernels(Gpu& gpu) {
  KernelRegistry registry;
  add_elementwise(registry, gpu);
  add_batch_norm(registry, gpu);
  add_layer_norm(registry, gpu);
  add_softmax(registry, gpu);
  add_attention(registry, gpu);
  add_matmul(registry, gpu);
  add_convolution(registry, gpu);
  add_pooling(registry, gpu);
  add_shape_ops(registry, gpu);
  add_reductions(registry, gpu);
  add_creation(registry, gpu);
  add_indexing(registry, gpu);
  add_optimizers(registry, gpu);
  return registry;
}

}  // namespace tessera::cuda
