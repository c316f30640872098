// MatrixProduct: one oneDNN matrix product inside a kernel that is made of several. Half types accumulate in f32.
#pragma once

#include <optional>
#include <string>

#include "tessera/kernels/cpu/matmul/onednn.h"

namespace tessera::kernels::cpu {

// Strides in elements; one of them is 1.
struct Matrix {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 1;
};

class MatrixProduct {
 public:
  // c = a b, or c += a b, by oneDNN's first choice or, where `implementation` is not empty, by another one whose name
  // begins with it. nullopt where there is no such fast one. Its threads are those of the OpenMpThreads at this time
  // and when it runs.
  static std::optional<MatrixProduct> make(const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate,
                                           const std::string& implementation, ScratchPlan& scratch);

  // Reads a and b; oneDNN's memory objects know no const.
  void run(void* a, void* b, void* c, std::span<std::byte> scratch);

 private:
  MatrixProduct(const dnnl::primitive_desc& desc, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                const dnnl::memory::desc& c, ScratchPlan& scratch);

  Primitive primitive_;
  size_t a_, b_, c_;
};

}  // namespace tessera::kernels::cpu
