// What the kernels that call oneDNN share. A Primitive is created once, when the kernel is prepared, with its memory
// objects; run() only puts addresses into them. Operands that oneDNN cannot take as they lie (a dtype that this CPU
// lacks, strides for which it has only its slow generic code) are staged: copied to or from dense memory in scratch.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "tessera/tensor/alignment.h"
#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

const dnnl::engine& onednn_engine();

// While it lives, OpenMP (and so oneDNN, which asks it both when a primitive is created and when it runs) uses
// concurrent_threads(num_threads) threads for what this thread starts. Other threads are not affected.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int num_threads);
  ~OpenMpThreads();
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_;
};

// nullopt for dtypes that oneDNN's kernels do not compute in.
std::optional<dnnl::memory::data_type> onednn_dtype(DType dtype);
dnnl::memory::dims onednn_dims(const Shape& shape);
dnnl::memory::desc onednn_desc(const TensorView& view);

// Hands out aligned pieces of a kernel's scratch memory.
class ScratchPlan {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += aligned(bytes);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

// An operand as a oneDNN kernel sees it: in place, or a dense copy of another dtype or layout in scratch.
class StagedOperand {
 public:
  // An operand that is used in place.
  StagedOperand() = default;
  // An operand that lies as `staged` (whose data is ignored) in memory taken from `scratch`.
  StagedOperand(const TensorView& view, const TensorView& staged, bool is_output, int num_threads,
                ScratchPlan& scratch);

  // The address that the primitive gets.
  void* address(const TensorView& view, const KernelArgs& args) const;
  // Fill the copy before, and write it back after, the primitive runs; nothing when in place.
  void copy_in(const TensorView& view, const KernelArgs& args) const { copy(view, args, true); }
  void copy_out(const TensorView& view, const KernelArgs& args) const { copy(view, args, false); }

 private:
  void copy(const TensorView& view, const KernelArgs& args, bool in) const;

  std::optional<TensorView> staged_;
  int64_t offset_ = 0;
  int64_t copy_offset_ = 0;
  PreparedKernel copy_;
};

// True for oneDNN's generic code, which is right but tens of times slower than the rest.
bool is_reference(const dnnl::primitive_desc_base& desc);
// User scratchpads: oneDNN must not allocate while it runs.
dnnl::primitive_attr onednn_attributes();

// A Primitive is one primitive with its arguments. They are bound by index; `bind` then sets their addresses for one
// run.
class Primitive {
 public:
  // `desc` is not empty; its scratchpad is taken from `scratch`.
  Primitive(const dnnl::primitive_desc_base& desc, ScratchPlan& scratch);

  // Returns the argument's index.
  size_t add(int argument, const dnnl::memory::desc& desc);
  void bind(size_t index, void* data) { arguments_[index].second.set_data_handle(data); }
  void run(std::span<std::byte> scratch);

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  int64_t scratchpad_offset_;
  std::vector<std::pair<int, dnnl::memory>> arguments_;
  std::vector<dnnl_exec_arg_t> raw_;
};

}  // namespace tessera::kernels::cpu
