#include "tessera/tensor/program_text.h"

#include <algorithm>
#include <sstream>

#include "tessera/base/error.h"

namespace tessera {

ProgramText read_program_text(const std::string& text, size_t num_outputs) {
  ProgramText program;
  std::istringstream pieces(text);
  for (std::string piece; std::getline(pieces, piece, ';');) {
    std::replace(piece.begin(), piece.end(), '=', ' ');
    std::istringstream words(piece);
    std::string name;
    std::string word;
    words >> name;
    if (name == "return") {
      while (words >> word) program.results.push_back(word);
      break;
    }
    words >> word;
    const auto op = find_element_op(word);
    if (!op) throw InvalidArgument("fused_elementwise: no operator \"{}\" in \"{}\"", word, text);
    ProgramText::Statement statement{name, *op, {}};
    while (words >> word) statement.operands.push_back(word);
    if (statement.operands.size() != static_cast<size_t>(info_of(*op).arity)) {
      throw InvalidArgument("fused_elementwise: {} takes {} operands in \"{}\"", info_of(*op).name, info_of(*op).arity,
                            text);
    }
    program.statements.push_back(std::move(statement));
  }
  if (program.results.size() != num_outputs) {
    throw InvalidArgument("fused_elementwise: program returns {} values, the node has {} outputs",
                          program.results.size(), num_outputs);
  }
  return program;
}

void throw_undefined_operand(const std::string& word, const std::string& text) {
  throw InvalidArgument("fused_elementwise: operand \"{}\" is not defined before its use in \"{}\"", word, text);
}

}  // namespace tessera
