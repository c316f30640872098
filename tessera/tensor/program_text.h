// The text of a fused program, "t0=mul a0 a1; t1=add t0 2; return t1", as statements. An operand is an input (a0, a1,
// ...), an earlier statement's name, or a number: whoever computes finds out which.
#pragma once

#include <string>
#include <vector>

#include "tessera/tensor/element_op.h"

namespace tessera {

struct ProgramText {
  struct Statement {
    std::string name;
    ElementOp op;
    std::vector<std::string> operands;  // as many as the operator takes
  };
  std::vector<Statement> statements;
  std::vector<std::string> results;  // operands, in the order of the outputs
};

// Throws InvalidArgument, which names the text, for an operator that is not known, a wrong number of operands, or
// another number of results than `num_outputs`.
ProgramText read_program_text(const std::string& text, size_t num_outputs);

// Throws the InvalidArgument of an operand that is neither a name nor a number.
[[noreturn]] void throw_undefined_operand(const std::string& word, const std::string& text);

}  // namespace tessera
