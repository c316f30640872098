// Further ways to compute matmul and batch_matmul than oneDNN's first choice with all threads (onednn_matmul.cc):
//   gemm     oneDNN's other implementation, which packs its operands differently
//   split    each thread has rows, or matrices of the batch, of its own
//   split_k  each thread contracts a part of the dim that is summed over, for small results of long sums; the parts
//            are added in f32 in the order of the threads
#include <algorithm>

#include "tessera/kernels/cpu/matmul/matrix_product.h"
#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

enum class Way { kGemm, kSplit, kSplitK };

// One operand: matrices that lie at equal distances.
struct Operand {
  Matrix matrix;
  int64_t distance = 0;  // elements from one matrix of the batch to the next

  int64_t bytes(int64_t elements) const { return elements * static_cast<int64_t>(size_bytes(matrix.dtype)); }
};

// nullopt where the batch dims do not lie so, or the matrix has no neighbouring elements.
std::optional<Operand> operand_of(const TensorView& view, bool transposed) {
  const int n = view.shape.ndim();
  for (int dim = 0; dim + 3 < n; ++dim) {
    if (view.strides[dim] != view.strides[dim + 1] * view.shape[dim + 1]) return std::nullopt;
  }
  Matrix matrix{view.dtype, view.shape[n - 2], view.shape[n - 1], view.strides[n - 2], view.strides[n - 1]};
  if (matrix.row_stride != 1 && matrix.column_stride != 1) return std::nullopt;
  if (transposed) {
    std::swap(matrix.rows, matrix.columns);
    std::swap(matrix.row_stride, matrix.column_stride);
  }
  return Operand{matrix, n > 2 ? view.strides[n - 3] : 0};
}

// What one thread does: one product for each matrix of a part of the batch, beginning at these elements.
struct Share {
  MatrixProduct product;
  int64_t first_matrix = 0, last_matrix = 0;
  int64_t a = 0, b = 0, c = 0;
  int64_t sum = 0;  // split_k: place of its part in scratch
};

class SplitMatmul {
 public:
  static std::shared_ptr<SplitMatmul> make(Way way, const KernelRequest& request);
  void run(const KernelArgs& args);
  int64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  bool plan(int64_t batch);
  template <typename T>
  void add_parts(const KernelArgs& args) const;

  Way way_ = Way::kGemm;
  int num_threads_ = 1;
  Operand a_, b_, c_;
  ScratchPlan scratch_;
  std::vector<Share> shares_;
};

std::shared_ptr<SplitMatmul> SplitMatmul::make(Way way, const KernelRequest& request) {
  // Operators that are fused with a matmul bring more operands.
  if (request.inputs.size() != 2 || request.outputs.size() != 1) return nullptr;
  for (const auto& views : {request.inputs, request.outputs}) {
    for (const TensorView& view : views) {
      if (!onednn_dtype(view.dtype) || view.num_elements() == 0 || view.shape.ndim() < 2) return nullptr;
    }
  }
  const TensorView& out = request.outputs[0];
  int64_t batch = 1;
  for (int dim = 0; dim + 2 < out.shape.ndim(); ++dim) batch *= out.shape[dim];
  for (const TensorView& view : request.inputs) {
    if (view.num_elements() != batch * view.shape[view.shape.ndim() - 2] * view.shape.back()) return nullptr;
  }
  const auto a = operand_of(request.inputs[0], request.attributes.get_bool("transpose_a"));
  const auto b = operand_of(request.inputs[1], request.attributes.get_bool("transpose_b"));
  const auto c = operand_of(out, false);
  if (!a || !b || !c || c->matrix.column_stride != 1) return nullptr;
  const auto made = std::make_shared<SplitMatmul>();
  made->way_ = way;
  made->num_threads_ = request.num_threads;
  made->a_ = *a;
  made->b_ = *b;
  made->c_ = *c;
  return made->plan(batch) ? made : nullptr;
}

bool SplitMatmul::plan(int64_t batch) {
  if (way_ == Way::kGemm ? batch > 1 : num_threads_ == 1) return false;
  if (way_ == Way::kSplitK && batch > 1) return false;
  const OpenMpThreads threads(way_ == Way::kGemm ? num_threads_ : 1);
  const int64_t parts = way_ == Way::kGemm ? 1 : num_threads_;
  const int64_t rows = a_.matrix.rows;
  const int64_t contracted = a_.matrix.columns;
  const int64_t divided = batch > 1 ? batch : way_ == Way::kSplitK ? contracted : rows;
  if (divided < parts) return false;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = divided * part / parts;
    const int64_t end = divided * (part + 1) / parts;
    Matrix a = a_.matrix;
    Matrix b = b_.matrix;
    Matrix c = c_.matrix;
    int64_t first_matrix = 0;
    int64_t last_matrix = 1;
    int64_t at_a = 0;
    int64_t at_b = 0;
    int64_t at_c = 0;
    if (batch > 1) {
      first_matrix = begin;
      last_matrix = end;
    } else if (way_ == Way::kSplitK) {
      a.columns = b.rows = end - begin;
      at_a = begin * a.column_stride;
      at_b = begin * b.row_stride;
      c = {DType::kF32, c.rows, c.columns, c.columns, 1};
    } else {
      a.rows = c.rows = end - begin;
      at_a = begin * a.row_stride;
      at_c = begin * c.row_stride;
    }
    auto product = MatrixProduct::make(a, b, c, false, way_ == Way::kGemm ? "gemm" : "", scratch_);
    if (!product) return false;
    Share share{std::move(*product), first_matrix, last_matrix, at_a, at_b, at_c};
    if (way_ == Way::kSplitK) share.sum = scratch_.add(c.rows * c.columns * static_cast<int64_t>(sizeof(float)));
    shares_.push_back(std::move(share));
  }
  return true;
}

void SplitMatmul::run(const KernelArgs& args) {
  const OpenMpThreads threads(num_threads_);
  const auto at = [](const TensorView& view, const Operand& operand, int64_t element) {
    return static_cast<std::byte*>(view.data) + operand.bytes(element);
  };
  args.parallel_for(static_cast<int64_t>(shares_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      Share& share = shares_[static_cast<size_t>(s)];
      for (int64_t m = share.first_matrix; m < share.last_matrix; ++m) {
        void* c = at(args.outputs[0], c_, share.c + m * c_.distance);
        if (way_ == Way::kSplitK) c = args.scratch.data() + share.sum;
        share.product.run(at(args.inputs[0], a_, share.a + m * a_.distance),
                          at(args.inputs[1], b_, share.b + m * b_.distance), c, args.scratch);
      }
    }
  });
  if (way_ == Way::kSplitK) {
    dispatch_floating(args.outputs[0].dtype, "matmul", [&](auto zero) { add_parts<decltype(zero)>(args); });
  }
}

template <typename T>
void SplitMatmul::add_parts(const KernelArgs& args) const {
  const Matrix& c = c_.matrix;
  auto* const to = static_cast<T*>(args.outputs[0].data);
  args.parallel_for(c.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto part = [&](const Share& share) {
        return reinterpret_cast<float*>(args.scratch.data() + share.sum) + row * c.columns;
      };
      float* const sum = part(shares_[0]);
      for (size_t s = 1; s < shares_.size(); ++s) {
        const float* const other = part(shares_[s]);
        for (int64_t column = 0; column < c.columns; ++column) sum[column] += other[column];
      }
      for (int64_t column = 0; column < c.columns; ++column) {
        to[row * c.row_stride + column] = static_cast<T>(sum[column]);
      }
    }
  });
}

std::vector<KernelCandidate> candidates(const KernelRequest& request) {
  std::vector<KernelCandidate> found;
  for (const auto& [suffix, way] : {std::pair{"gemm", Way::kGemm}, {"split", Way::kSplit}, {"split_k", Way::kSplitK}}) {
    const std::string name = fmt::format("matmul.{}/{}", request.op, suffix);
    found.push_back({name, [&request, way = way, name]() -> std::optional<PreparedKernel> {
                       const auto made = SplitMatmul::make(way, request);
                       if (!made) return std::nullopt;
                       return PreparedKernel{.name = name,
                                             .run = [made](const KernelArgs& args) { made->run(args); },
                                             .scratch_bytes = made->scratch_bytes()};
                     }});
  }
  return found;
}

}  // namespace

void add_matmul_candidates(KernelRegistry& registry) {
  registry.add_candidates("matmul", candidates);
  registry.add_candidates("batch_matmul", candidates);
}

}  // namespace tessera::kernels::cpu
