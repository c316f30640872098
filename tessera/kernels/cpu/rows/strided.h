// Loops over strided views: the dims of several operands merged where all of them allow it, and kernels that work on
// slices of their operands.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

inline constexpr int kMaxOperands = 24;

struct MergedDim {
  int64_t size = 1;
  std::array<int64_t, kMaxOperands> strides{};  // the strides of each operand
};

// The strides of `view` seen with `shape` (NumPy broadcasting): 0 where it is repeated; nullopt where it does not fit.
std::optional<Strides> broadcast_strides(const TensorView& view, const Shape& shape);

// The dims of `shape` outermost first, as operand `ordering` lies in memory: dims of size 1 dropped, neighbours that
// all operands walk as one merged. At least one dim; a single element has size 1 and strides 1. nullopt when `ordering`
// has a stride below 1.
std::optional<std::vector<MergedDim>> merge_dims(const Shape& shape, const std::vector<Strides>& strides,
                                                 size_t ordering);

// Some of the dims of a merged loop, counted through by one number.
class DimCounter {
 public:
  void add(const MergedDim& dim) {
    dims_.push_back(dim);
    count_ *= dim.size;
  }
  int64_t count() const { return count_; }
  // Whether items lie at equal distances, and at which in an operand.
  bool is_line() const { return dims_.size() == 1; }
  int64_t distance(size_t operand) const { return dims_[0].strides[operand]; }
  // Where item `index` lies in an operand.
  int64_t offset(int64_t index, size_t operand) const {
    if (dims_.empty()) return 0;
    int64_t offset = 0;
    for (size_t d = dims_.size() - 1; d > 0; --d) {
      offset += index % dims_[d].size * dims_[d].strides[operand];
      index /= dims_[d].size;
    }
    return offset + index * dims_[0].strides[operand];
  }

 private:
  std::vector<MergedDim> dims_;  // outermost first
  int64_t count_ = 1;
};

// Part of an operand: while a kernel is prepared there is no address, so an offset stands for it.
struct OperandPart {
  TensorView view;
  int64_t offset_bytes = 0;
};
// `shape` elements from `offset` (in elements) on.
OperandPart slice_of(const TensorView& view, int64_t offset, const Shape& shape, const Strides& strides);
// [begin, begin + size) of a dim.
OperandPart slice_dim(const TensorView& view, int dim, int64_t begin, int64_t size);

// A kernel made of several, each on slices of the operands, one after another.
class SlicedKernel {
 public:
  // The slices are of the inputs from `first_input` on, and of the outputs from `first_output` on.
  void add(PreparedKernel kernel, std::vector<OperandPart> inputs, std::vector<OperandPart> outputs,
           size_t first_input = 0, size_t first_output = 0);
  bool empty() const { return parts_.empty(); }
  void run(const KernelArgs& args) const;

  // The whole as a kernel; its in-place pairs are those of the first part.
  static PreparedKernel finish(std::shared_ptr<const SlicedKernel> sliced, const std::string& name);

 private:
  struct Slice {
    PreparedKernel kernel;
    std::vector<OperandPart> inputs, outputs;
    size_t first_input, first_output;
  };
  std::vector<Slice> parts_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace tessera::kernels::cpu
