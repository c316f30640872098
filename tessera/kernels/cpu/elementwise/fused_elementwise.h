// The operator fused_elementwise: a chain of elementwise operators in one pass over memory. Attributes:
//   program="t0=sub a0 a1; t1=mul t0 0.5; t2=relu t1; return t2"    num_outputs=1
// A program is assignments `name=op operand...`, separated by ';' (spaces around it are free), then `return operand...`
// with one operand for each output. Operands: a0, a1, ... the node's inputs; a name assigned before; a number.
// Operators: the names of tensor/element_op.h, computed in f32. A bool is 1 or 0; a half result is rounded when it is
// stored, while round_bf16 and round_f16 round at once and stay f32. Gradients take dy, then y or x as their operator.
// The fast kernel takes at most 24 inputs and outputs together, and 128 inputs, numbers and assignments together;
// longer programs go to the reference kernel, so a pass that fuses should stop before. Inputs are f32, bf16, f16, u8 or
// bool and broadcast to the outputs, which share one shape. A node whose tensors are f64 is computed in f64 by the
// reference kernel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/kernels/cpu/rows/tile_program.h"

namespace tessera::kernels::cpu {

// Throws InvalidArgument naming the assignment that is wrong: an unknown operator or operand, a wrong number of them, a
// number of results that is not num_outputs.
TileProgram parse_tile_program(std::string_view text, int num_inputs, int num_outputs);

}  // namespace tessera::kernels::cpu
