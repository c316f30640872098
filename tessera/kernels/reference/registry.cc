#include "tessera/kernels/registry.h"
#include "tessera/kernels/reference/families.h"

namespace tessera::kernels {

const KernelRegistry& reference_kernels() {
  static const KernelRegistry registry = [] {
    KernelRegistry made;
    reference::add_attention(made);
    reference::add_elementwise(made);
    reference::add_reductions(made);
    reference::add_shape_ops(made);
    reference::add_creation(made);
    reference::add_indexing(made);
    reference::add_matmul(made);
    reference::add_convolution(made);
    reference::add_pooling(made);
    reference::add_normalization(made);
    reference::add_softmax(made);
    reference::add_optimizers(made);
    reference::add_fused(made);
    reference::add_fused_norms(made);
    return made;
  }();
  return registry;
}

}  // namespace tessera::kernels
