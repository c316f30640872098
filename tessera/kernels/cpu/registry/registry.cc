#include "tessera/kernels/registry.h"

#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels {

const KernelRegistry& cpu_kernels() {
  static const KernelRegistry registry = [] {
    KernelRegistry made;
    cpu::add_all_finite(made);
    cpu::add_attention(made);
    cpu::add_batch_norm(made);
    // Convolutions' candidates are tried in this order, until they have taken too long: the most promising come first.
    cpu::add_winograd_convolution(made);
    cpu::add_matmul_convolution(made);
    cpu::add_convolution(made);
    cpu::add_matmul(made);
    cpu::add_matmul_candidates(made);
    cpu::add_elementwise(made);
    cpu::add_fused_elementwise(made);
    cpu::add_fused_matmul(made);
    cpu::add_misc(made);
    cpu::add_normalization(made);
    cpu::add_copied_batch_norm(made);  // what none of the others take
    cpu::add_optimizers(made);
    cpu::add_pooling(made);
    cpu::add_reductions(made);
    cpu::add_row_kernels(made);
    cpu::add_shape_ops(made);
    return made;
  }();
  return registry;
}

}  // namespace tessera::kernels
