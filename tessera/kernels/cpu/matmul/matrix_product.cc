#include "tessera/kernels/cpu/matmul/matrix_product.h"

namespace tessera::kernels::cpu {
namespace {

// Strides of dims of size 1 say nothing; oneDNN takes them for the distance between rows, or columns.
dnnl::memory::desc desc_of(Matrix matrix) {
  if (matrix.columns == 1) matrix.column_stride = 1;
  if (matrix.rows == 1) matrix.row_stride = matrix.column_stride == 1 ? matrix.columns : 1;
  return {{matrix.rows, matrix.columns}, onednn_dtype(matrix.dtype).value(), {matrix.row_stride, matrix.column_stride}};
}

}  // namespace

std::optional<MatrixProduct> MatrixProduct::make(const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate,
                                                 const std::string& implementation, ScratchPlan& scratch) {
  dnnl::primitive_attr attributes = onednn_attributes();
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  dnnl::matmul::primitive_desc desc(onednn_engine(), desc_of(a), desc_of(b), desc_of(c), attributes,
                                    /*allow_empty=*/true);
  if (!desc) return std::nullopt;
  const auto is_it = [&] { return std::string_view(desc.impl_info_str()).starts_with(implementation); };
  if (!implementation.empty() && is_it()) return std::nullopt;
  while (!is_it()) {
    if (!desc.next_impl()) return std::nullopt;
  }
  if (is_reference(desc)) return std::nullopt;
  return MatrixProduct(desc, desc_of(a), desc_of(b), desc_of(c), scratch);
}

MatrixProduct::MatrixProduct(const dnnl::primitive_desc& desc, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                             const dnnl::memory::desc& c, ScratchPlan& scratch)
    : primitive_(desc, scratch),
      a_(primitive_.add(DNNL_ARG_SRC, a)),
      b_(primitive_.add(DNNL_ARG_WEIGHTS, b)),
      c_(primitive_.add(DNNL_ARG_DST, c)) {}

void MatrixProduct::run(void* a, void* b, void* c, std::span<std::byte> scratch) {
  primitive_.bind(a_, a);
  primitive_.bind(b_, b);
  primitive_.bind(c_, c);
  primitive_.run(scratch);
}

}  // namespace tessera::kernels::cpu
