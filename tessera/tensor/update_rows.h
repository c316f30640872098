// update_rows: an optimizer's update of some rows of a parameter and its states. The gradient comes as rows, each with
// the number of the parameter's row that it belongs to; those of one number are added up in their order. A row that no
// number names stays as it is.
#pragma once

#include <optional>
#include <string>

#include "tessera/tensor/kernel.h"

namespace tessera {

// How an update_rows' operands are made of its optimizer's: the parameter and its states, the numbers and the rows of
// the gradient, the scalars, and, where `may_be_whole`, a scalar that says by not being 0 that all rows are updated,
// those that no number names by a gradient of zeros. Where `keeps_states` and not all rows are updated, states stay as
// they are and the optimizer sees zeros in their place, so that they are not brought from memory. Its results: the new
// parameter and states.
struct UpdateRows {
  std::string optimizer;  // the operator that updates a whole parameter
  Attributes settings;    // and its attributes
  size_t num_states = 0;
  size_t num_scalars = 0;
  bool may_be_whole = false;
  bool keeps_states = false;

  // Reads the attributes optimizer, settings, states, may_be_whole and keeps_states, and the number of operands. Throws
  // InvalidArgument when there are too few operands.
  UpdateRows(const Attributes& attributes, size_t num_inputs);
  size_t num_results() const { return 1 + num_states; }
  // The places of operands.
  size_t ids() const { return num_results(); }
  size_t rows() const { return num_results() + 1; }
  size_t scalar(size_t i) const { return num_results() + 2 + i; }
  size_t whole() const { return scalar(num_scalars); }
  // What the gradient is added up in: f64 for an f64 parameter, else f32.
  static DType computed(DType parameter) { return parameter == DType::kF64 ? DType::kF64 : DType::kF32; }
};

// Whether a scalar, of any dtype, is 0.
bool is_zero_scalar(const TensorView& scalar);

// The kernel, of the optimizer's kernel in `optimizers`; nullopt where that is declined. It sorts the numbers, and
// copies rows into blocks for the optimizer's kernel and back.
std::optional<PreparedKernel> prepare_update_rows(const KernelRequest& request, const KernelRegistry& optimizers);

}  // namespace tessera
