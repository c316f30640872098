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

// Registers matmul and batch_matmul for what cuBLASLt takes: f32, f64, bf16 and f16, matrices with one dense dim. Where
// TF32 is allowed, operands of f32 are rounded to that.
void add_library_products(KernelRegistry& registry, CudaDevice& device, const LibraryWays& ways);

}  // namespace tessera::cuda
