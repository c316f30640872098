// ProductEpilogue: what cuBLASLt does to a product before it writes it. Any build has this; it needs no header of
// CUDA's.
#pragma once

#include <optional>

#include "tessera/tensor/kernel.h"

namespace tessera::cuda {

// gelu(product + value + bias), of which each may be missing: the order in which the library adds, whatever that of the
// program. Numbers are those of the request's inputs.
struct ProductEpilogue {
  std::optional<size_t> bias = std::nullopt;   // [n] or [1,n], its elements one after another
  std::optional<size_t> value = std::nullopt;  // [m,n], added as the library's C with beta = 1
  bool has_gelu = false;                       // by tanh
};

// The program of a fused_matmul as the library's epilogue; nullopt where it is none. Bias and value must have the
// result's dtype, which is not f64. Of the forms of gelu the library computes the one by tanh, to a precision that it
// does not state: only half types take that, whose rounding is coarser. relu is never an epilogue: max(x, 0) makes 0 of
// NaN.
std::optional<ProductEpilogue> product_epilogue(const KernelRequest& request);

}  // namespace tessera::cuda
