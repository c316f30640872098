#include "tessera/kernels/cuda/libraries/product_epilogue.h"

#include "tessera/tensor/program_text.h"

namespace tessera::cuda {
namespace {

bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

bool is_bias(const TensorView& view, const Shape& product) {
  const int64_t columns = product[1];
  if (!(view.shape == Shape{columns} || view.shape == Shape{1, columns})) return false;
  return columns == 1 || view.strides[view.shape.ndim() - 1] == 1;
}

// The number of the request's input that an operand of the program names; nullopt for the product and for what is no
// input.
std::optional<size_t> input_of(const std::string& operand, size_t num_inputs) {
  for (size_t i = 2; i < num_inputs; ++i) {
    if (operand == "a" + std::to_string(i - 1)) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ProductEpilogue> product_epilogue(const KernelRequest& request) {
  const TensorView& out = request.outputs[0];
  if (out.dtype == DType::kF64 || out.shape.ndim() != 2) return std::nullopt;
  const ProgramText program = read_program_text(request.attributes.get_string("program"), /*num_outputs=*/1);
  ProductEpilogue epilogue;
  std::string before = "a0";
  for (const auto& statement : program.statements) {
    if (epilogue.has_gelu) return std::nullopt;
    if (statement.op == ElementOp::kGeluTanh && statement.operands[0] == before && is_half(out.dtype)) {
      epilogue.has_gelu = true;
    } else if (statement.op == ElementOp::kAdd) {
      const bool is_left = statement.operands[0] == before;
      if (!is_left && statement.operands[1] != before) return std::nullopt;
      const auto input = input_of(statement.operands[is_left ? 1 : 0], request.inputs.size());
      if (!input || request.inputs[*input].dtype != out.dtype) return std::nullopt;
      const TensorView& added = request.inputs[*input];
      if (!epilogue.bias && is_bias(added, out.shape)) {
        epilogue.bias = input;
      } else if (!epilogue.value && added.shape == out.shape) {
        epilogue.value = input;
      } else {
        return std::nullopt;
      }
    } else {
      return std::nullopt;
    }
    before = statement.name;
  }
  if (program.results[0] != before) return std::nullopt;
  return epilogue;
}

}  // namespace tessera::cuda
