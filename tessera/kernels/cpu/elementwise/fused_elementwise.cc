#include "tessera/kernels/cpu/elementwise/fused_elementwise.h"

#include <charconv>
#include <map>

#include "tessera/kernels/cpu/registry/families.h"

namespace tessera::kernels::cpu {
namespace {

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Splits at `separator`, dropping empty pieces.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    if (const auto piece = trim(text.substr(0, end)); !piece.empty()) pieces.push_back(piece);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

bool parse_number(std::string_view word, float& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

struct Statement {
  std::string_view text;
  std::string_view name;  // "return" for the last one
  std::vector<std::string_view> words;
};

Statement parse_statement(std::string_view text) {
  Statement statement{text, {}, {}};
  const auto equals = text.find('=');
  statement.words = split(equals == std::string_view::npos ? text : text.substr(equals + 1), ' ');
  if (equals != std::string_view::npos) {
    statement.name = trim(text.substr(0, equals));
  } else if (!statement.words.empty() && statement.words[0] == "return") {
    statement.name = "return";
  }
  if (statement.name.empty() || statement.words.empty()) {
    throw InvalidArgument("fused_elementwise: \"{}\" must be name=op operand... or return operand...", text);
  }
  return statement;
}

}  // namespace

TileProgram parse_tile_program(std::string_view text, int num_inputs, int num_outputs) {
  TileProgram program;
  program.num_inputs = num_inputs;
  std::vector<Statement> statements;
  for (const std::string_view piece : split(text, ';')) statements.push_back(parse_statement(piece));
  if (statements.empty() || statements.back().name != "return") {
    throw InvalidArgument("fused_elementwise: program \"{}\" must end with return", text);
  }

  // Constants come before results in the numbering of slots, so they are collected first.
  std::map<std::string, int, std::less<>> slots;
  for (int i = 0; i < num_inputs; ++i) slots[fmt::format("a{}", i)] = i;
  for (const Statement& statement : statements) {
    for (size_t i = 1; i < statement.words.size(); ++i) {
      float number = 0;
      if (slots.contains(statement.words[i]) || !parse_number(statement.words[i], number)) continue;
      slots[std::string(statement.words[i])] = num_inputs + static_cast<int>(program.constants.size());
      program.constants.push_back(number);
    }
  }

  for (const Statement& statement : statements) {
    std::vector<int> operands;
    for (size_t i = 1; i < statement.words.size(); ++i) {
      const auto slot = slots.find(statement.words[i]);
      if (slot == slots.end()) {
        throw InvalidArgument("fused_elementwise: \"{}\": operand \"{}\" is not defined before its use", statement.text,
                              statement.words[i]);
      }
      operands.push_back(slot->second);
    }
    if (statement.name == "return") {
      if (&statement != &statements.back()) {
        throw InvalidArgument("fused_elementwise: \"{}\" must be the last statement of the program", statement.text);
      }
      program.results = operands;
      continue;
    }
    const auto op = find_element_op(statement.words[0]);
    if (!op) throw InvalidArgument("fused_elementwise: \"{}\": no operator \"{}\"", statement.text, statement.words[0]);
    const auto arity = static_cast<size_t>(info_of(*op).arity);
    if (operands.size() != arity) {
      throw InvalidArgument("fused_elementwise: \"{}\": {} takes {} operands, got {}", statement.text,
                            statement.words[0], arity, operands.size());
    }
    operands.resize(3, -1);
    if (!slots.emplace(statement.name, program.add(*op, operands[0], operands[1], operands[2])).second) {
      throw InvalidArgument("fused_elementwise: \"{}\": \"{}\" is defined already", statement.text, statement.name);
    }
  }
  if (static_cast<int>(program.results.size()) != num_outputs) {
    throw InvalidArgument("fused_elementwise: program returns {} values, the node has {} outputs",
                          program.results.size(), num_outputs);
  }
  return program;
}

void add_fused_elementwise(KernelRegistry& registry) {
  registry.add("fused_elementwise", [](const KernelRequest& request) {
    TileProgram program =
        parse_tile_program(request.attributes.get_string("program"), static_cast<int>(request.inputs.size()),
                           static_cast<int>(request.outputs.size()));
    return prepare_tile_program(request, std::move(program), "cpu.fused_elementwise");
  });
}

}  // namespace tessera::kernels::cpu
