// A TileProgram is a straight-line list of row operations that is run tile by tile (about a thousand elements, which
// stay in the first-level cache), so that a chain of elementwise operators reads its inputs and writes its results
// once. Inputs and results may have any strides and broadcast as NumPy does; all results have one shape. Dtypes: f32
// bf16 f16 u8 bool; everything is computed in f32 and rounded where a result is stored.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/kernels/cpu/rows/row_ops.h"
#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

// A slot names a value: the inputs first, then the constants, then the result of each instruction, in order.
struct TileInstruction {
  ElementOp op;
  int a = -1;
  int b = -1;
  int c = -1;
};

struct TileProgram {
  int num_inputs = 0;
  std::vector<float> constants;
  std::vector<TileInstruction> instructions;
  std::vector<int> results;  // a slot for each output

  // Adds a constant and returns its slot. All constants come before the first instruction.
  int constant(double value) {
    constants.push_back(static_cast<float>(value));
    return num_inputs + static_cast<int>(constants.size()) - 1;
  }
  // Adds an instruction and returns its slot.
  int add(ElementOp op, int a, int b = -1, int c = -1) {
    instructions.push_back({op, a, b, c});
    return num_inputs + static_cast<int>(constants.size() + instructions.size()) - 1;
  }
};

// The kernel that runs `program` on a request, or nullopt for dtypes, overlapping outputs or a number of operands that
// it does not take.
std::optional<PreparedKernel> prepare_tile_program(const KernelRequest& request, TileProgram program, std::string name);

}  // namespace tessera::kernels::cpu
