// cuBLASLt: products of matrices. The library is opened when it is first asked for.
#pragma once

#include <cublasLt.h>

#include "tessera/kernels/cuda/device/cuda_device.h"
#include "tessera/kernels/cuda/libraries/timing.h"
#include "tessera/tensor/kernel.h"

namespace tessera::cuda {

// X(member, function of libcublasLt.so.13)
#define TESSERA_CUBLASLT(X)                              \
  X(create, cublasLtCreate)                              \
  X(multiply, cublasLtMatmul)                            \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic)           \
  X(create_description, cublasLtMatmulDescCreate)        \
  X(destroy_description, cublasLtMatmulDescDestroy)      \
  X(set_description, cublasLtMatmulDescSetAttribute)     \
  X(create_layout, cublasLtMatrixLayoutCreate)           \
  X(destroy_layout, cublasLtMatrixLayoutDestroy)         \
  X(set_layout, cublasLtMatrixLayoutSetAttribute)        \
  X(create_preference, cublasLtMatmulPreferenceCreate)   \
  X(destroy_preference, cublasLtMatmulPreferenceDestroy) \
  X(set_preference, cublasLtMatmulPreferenceSetAttribute)

struct CublasLt {
#define TESSERA_MEMBER(member, function) decltype(&::function) member = nullptr;
  TESSERA_CUBLASLT(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

// Throws IoError where libcublasLt.so.13 is not found.
const CublasLt& cublaslt();

// Registers matmul, batch_matmul and fused_matmul for what cuBLASLt takes: f32, f64, bf16 and f16, matrices with one
// dense dim. Where TF32 is allowed, operands of f32 are rounded to that. The program of a fused_matmul is the library's
// epilogue where it is one (product_epilogue.h) and no slower, else a kernel of `generated`, which outlives the
// registry, behind the product.
void add_library_products(KernelRegistry& registry, CudaDevice& device, const KernelRegistry& generated,
                          const LibraryWays& ways);

}  // namespace tessera::cuda
