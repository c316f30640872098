// The parts that the kernels of attention and of its gradient share: how the work is cut into blocks, the matrix
// products of a block, and the rows of mask and dropout. A block is some query positions of some heads of one batch
// row; one thread computes it, with oneDNN's products in between, and its scores stay in the cache.
#pragma once

#include <vector>

#include "tessera/kernels/attention_problem.h"
#include "tessera/kernels/cpu/attention/attention_rows.h"
#include "tessera/kernels/cpu/matmul/onednn.h"
#include "tessera/kernels/cpu/rows/random_rows.h"
#include "tessera/kernels/cpu/rows/row_ops.h"

namespace tessera::kernels::cpu {

struct BlockSize {
  int64_t heads;
  int64_t rows;  // query positions; the last block of a sequence may have fewer
};
// `num_threads` shall have enough blocks of a whole sequence each.
BlockSize block_size(const AttentionProblem& problem, int num_threads);

// A HeadMatrix has a matrix for each head of a block.
struct HeadMatrix {
  DType dtype;
  int64_t heads, rows, columns;
  int64_t head_stride, row_stride;
  bool is_transposed = false;  // `rows` and `columns` are those of the memory; it is read as [columns, rows]

  // Makes dense matrices.
  HeadMatrix(DType dtype, int64_t heads, int64_t rows, int64_t columns)
      : dtype(dtype), heads(heads), rows(rows), columns(columns), head_stride(rows * columns), row_stride(columns) {}
  // Some heads and tokens of an operand [batch, tokens, heads, features].
  HeadMatrix(const TensorView& view, int64_t heads, int64_t tokens)
      : dtype(view.dtype),
        heads(heads),
        rows(tokens),
        columns(view.shape[3]),
        head_stride(view.strides[2]),
        row_stride(view.strides[1]) {}
  HeadMatrix transposed() const;
  dnnl::memory::desc desc() const;
};

// out = lhs rhs, or out += lhs rhs, for each head, by the thread that calls it.
class HeadProduct {
 public:
  HeadProduct(const HeadMatrix& lhs, const HeadMatrix& rhs, const HeadMatrix& out, bool adds, ScratchPlan& scratch);
  // oneDNN has only its generic code for it.
  bool is_slow() const { return is_slow_; }
  void run(const void* lhs, const void* rhs, void* out, std::span<std::byte> scratch);

 private:
  bool is_slow_;
  Primitive primitive_;
  size_t lhs_, rhs_, out_;
};

// The first element of a head at a token.
void* at(const TensorView& view, int64_t row, int64_t token, int64_t head);

// What masks and dropout need for one row of scores, with a thread's own scratch.
class RowExtras {
 public:
  RowExtras(const AttentionProblem& problem, ScratchPlan& scratch);

  // The mask of a row as numbers to add to its scores; null without a mask.
  const float* mask(const KernelArgs& args, int64_t row, int64_t head, int64_t query) const;
  // Draws what dropout keeps of a row; drop() then applies it, x to y, which may be x.
  void draw(const KernelArgs& args, int64_t row, int64_t head, int64_t query) const;
  void drop(const KernelArgs& args, const float* x, float* y) const;

 private:
  AttentionProblem problem_;
  int64_t mask_offset_, bits_offset_;
};

// The operands of attention as its kernels take them: of a dtype that oneDNN computes in, the features of a head side
// by side. Others are staged.
class AttentionOperands {
 public:
  // The first `num_inputs` operands and the first `num_outputs` results; in f32 if `widen`.
  AttentionOperands(const KernelRequest& request, size_t num_inputs, size_t num_outputs, bool widen,
                    ScratchPlan& scratch);

  const TensorView& input(size_t i) const { return inputs_[i].view; }
  const TensorView& output(size_t i) const { return outputs_[i].view; }
  // Calls run with the operands as they are seen here.
  void run(const KernelArgs& args, FunctionRef<void(const KernelArgs&)> run) const;

 private:
  struct Seen {
    TensorView view;
    StagedOperand staged;
  };
  std::vector<Seen> inputs_, outputs_;
};

}  // namespace tessera::kernels::cpu
