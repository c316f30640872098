// oneDNN's matmul, with what it does to the elements of a product before it writes them.
#pragma once

#include <vector>

#include "tessera/kernels/cpu/matmul/onednn.h"

namespace tessera::kernels::cpu {

// What is done to the product, in this order: the bias is added, then the post-ops; all in f32.
struct MatmulEpilogue {
  // An operand of the bias or of a post-op: input `input` of the node is argument `argument` of the primitive.
  struct Value {
    size_t input;
    int argument;
    dnnl::memory::desc desc;
  };
  dnnl::memory::desc bias = {};  // the bias of [1,n]; empty: none
  dnnl::post_ops post_ops = {};
  std::vector<Value> values = {};
};

// The product of the first two inputs, as matmul and batch_matmul have it, and the epilogue on it. nullopt where oneDNN
// has no code for it.
std::optional<PreparedKernel> prepare_matmul(const KernelRequest& request, const MatmulEpilogue& epilogue = {});

}  // namespace tessera::kernels::cpu
