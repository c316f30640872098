#include "tessera/ops/registry/families.h"

namespace tessera::ops {

void add_all_families(OpRegistry& registry) {
  add_elementwise(registry);
  add_reductions(registry);
  add_all_finite(registry);
  add_selection(registry);
  add_shape_ops(registry);
  add_creation(registry);
  add_custom_gradient(registry);
  add_indexing(registry);
  add_matmul(registry);
  add_convolution(registry);
  add_pooling(registry);
  add_normalization(registry);
  add_layer_norm(registry);
  add_softmax(registry);
  add_attention(registry);
  add_optimizers(registry);
  add_update_rows(registry);
  add_collectives(registry);
  add_exchange(registry);
  add_fused(registry);
  add_fused_norms(registry);
}

}  // namespace tessera::ops
