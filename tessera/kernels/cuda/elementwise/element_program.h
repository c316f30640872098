// ElementProgram: what is done to each element, as device text. Elementwise operators are one; fused ones and what
// follows a product of matrices are, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/kernels/cuda/core/device_program.h"
#include "tessera/tensor/element_op.h"

namespace tessera::cuda {

struct ElementProgram {
  // What the arithmetic is done in. Operands are converted to it and stand in variables a0, a1, ... of that type.
  DType computed = DType::kF32;
  std::string statements;
  std::vector<std::string> results;  // expressions, one for each output
  // How a result becomes an element: as a number that is rounded, or bit by bit, which takes equal dtypes.
  bool keeps_bits = false;
};

// "tessera::element_value<..., f32>(a0, a1)".
std::string call_text(ElementOp op, DType computed, const std::vector<std::string>& operands);
// The program of fused_elementwise and fused_matmul: the attribute "program". Throws InvalidArgument for a text that is
// none.
ElementProgram parse_element_program(const std::string& text, size_t num_inputs, size_t num_outputs, bool in_f64);
// A statement's expression that converts `value`, of type `computed`, to an element of the dtype as programs do.
std::string stored(const std::string& value, DType computed, DType dtype);

// The kernel that does so to each element, of operands that are stretched to the first result's shape. nullopt: never.
DeviceProgram write_element_program(const KernelRequest& request, const Gpu& gpu, const ElementProgram& program,
                                    std::string name);

}  // namespace tessera::cuda
