#include "tessera/kernels/cuda/elementwise/element_program.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/tensor/program_text.h"

namespace tessera::cuda {
namespace {

// How many elements a thread reads and writes at once: 16 bytes of the narrowest, at most eight elements.
int64_t widest_pack(const KernelRequest& request) {
  size_t narrowest = 8;
  for (const auto& view : request.inputs) narrowest = std::min(narrowest, size_bytes(view.dtype));
  for (const auto& view : request.outputs) narrowest = std::min(narrowest, size_bytes(view.dtype));
  return std::min<int64_t>(8, 16 / static_cast<int64_t>(narrowest));
}

// Pairs that may share memory: those of equal elements at equal places.
std::vector<std::pair<int, int>> in_place_pairs(const KernelRequest& request) {
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    for (size_t o = 0; o < request.outputs.size(); ++o) {
      const TensorView& in = request.inputs[i];
      const TensorView& out = request.outputs[o];
      if (in.type() == out.type() && in.strides == out.strides) {
        pairs.emplace_back(static_cast<int>(i), static_cast<int>(o));
      }
    }
  }
  return pairs;
}

}  // namespace

std::string call_text(ElementOp op, DType computed, const std::vector<std::string>& operands) {
  const char* type = to_string(computed);
  std::string text = fmt::format("tessera::element_value<tessera::ElementOp({}), {}>(", static_cast<int>(op),
                                 computed == DType::kBool ? "bool" : type);
  for (size_t i = 0; i < operands.size(); ++i) text += (i > 0 ? ", " : "") + operands[i];
  return text + ")";
}

ElementProgram parse_element_program(const std::string& text, size_t num_inputs, size_t num_outputs, bool in_f64) {
  ElementProgram program{.computed = in_f64 ? DType::kF64 : DType::kF32};
  const char* type = to_string(program.computed);
  std::map<std::string, std::string> names;  // of the text -> of the device text
  for (size_t i = 0; i < num_inputs; ++i) names[fmt::format("a{}", i)] = fmt::format("a{}", i);
  const auto operand = [&](const std::string& word) {
    if (const auto it = names.find(word); it != names.end()) return it->second;
    char* end = nullptr;
    const double number = in_f64 ? std::strtod(word.c_str(), &end) : std::strtof(word.c_str(), &end);
    if (word.empty() || *end != 0) throw_undefined_operand(word, text);
    return literal(number, program.computed);
  };
  const ProgramText read = read_program_text(text, num_outputs);
  for (size_t i = 0; i < read.statements.size(); ++i) {
    const auto& statement = read.statements[i];
    std::vector<std::string> operands;
    for (const auto& word : statement.operands) operands.push_back(operand(word));
    const std::string variable = fmt::format("v{}", i);
    program.statements +=
        fmt::format("const {} {} = {};\n", type, variable, call_text(statement.op, program.computed, operands));
    names[statement.name] = variable;
  }
  for (const auto& result : read.results) program.results.push_back(operand(result));
  return program;
}

std::string stored(const std::string& value, DType computed, DType dtype) {
  if (dtype == computed) return value;
  if (dtype == DType::kBool) return fmt::format("({}) != 0", value);
  if (dtype == DType::kU8 || is_floating(dtype)) return fmt::format("converted<{}>({})", to_string(dtype), value);
  return fmt::format("{}({})", to_string(dtype), value);
}

DeviceProgram write_element_program(const KernelRequest& request, const Gpu& gpu, const ElementProgram& program,
                                    std::string name) {
  DeviceProgram made{.name = std::move(name), .in_place = in_place_pairs(request)};
  const Shape& shape = request.outputs[0].shape;
  if (shape.num_elements() == 0) return made;
  std::vector<NamedStrides> views;
  for (size_t o = 0; o < request.outputs.size(); ++o) {
    views.push_back({fmt::format("q{}", o), request.outputs[o].strides});
  }
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    views.push_back({fmt::format("p{}", i), stretched(request.inputs[i], shape)});
  }
  ViewWalk walk = in_order_of_first(shape, std::move(views));
  int64_t pack = widest_pack(request);
  std::optional<ViewWalk> packs;
  for (; !(packs = packed(walk, pack)); pack /= 2) {
  }
  // A result must be written whole.
  const int last = packs->shape.ndim() - 1;
  for (size_t o = 0; o < request.outputs.size() && pack > 1; ++o) {
    if (packs->views[o].strides[last] != pack) {
      pack = 1;
      packs = walk;
    }
  }
  const std::string type = index_type(walk.shape, walk.views);
  const int64_t count = packs->shape.num_elements();
  std::string body = loop_text(type, "i", count) + offsets_text(packs->shape, packs->views, "i");
  const auto is_whole = [&](const NamedStrides& view) { return pack > 1 && view.strides[last] == pack; };
  const size_t num_outputs = request.outputs.size();
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const char* dtype = to_string(request.inputs[i].dtype);
    body +=
        is_whole(packs->views[num_outputs + i])
            ? fmt::format("const auto x{0} = *reinterpret_cast<const Pack<{1}, {2}>*>(in{0} + p{0});\n", i, dtype, pack)
            : fmt::format("const {1} x{0} = in{0}[p{0}];\n", i, dtype);
  }
  for (size_t o = 0; o < num_outputs; ++o) {
    body += fmt::format("Pack<{}, {}> y{};\n", to_string(request.outputs[o].dtype), pack, o);
  }
  body += fmt::format("#pragma unroll\nfor (int j = 0; j < {}; ++j) {{\n", pack);
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const std::string element = fmt::format("x{}{}", i, is_whole(packs->views[num_outputs + i]) ? "[j]" : "");
    body += fmt::format(
        "const auto a{} = {};\n", i,
        program.keeps_bits ? element : fmt::format("static_cast<{}>(wide({}))", to_string(program.computed), element));
  }
  body += program.statements;
  for (size_t o = 0; o < num_outputs; ++o) {
    const std::string& result = program.results[o];
    body += fmt::format("y{}[j] = {};\n", o,
                        program.keeps_bits ? result : stored(result, program.computed, request.outputs[o].dtype));
  }
  body += "}\n";
  for (size_t o = 0; o < num_outputs; ++o) {
    body += pack > 1 ? fmt::format("*reinterpret_cast<Pack<{1}, {2}>*>(out{0} + q{0}) = y{0};\n", o,
                                   to_string(request.outputs[o].dtype), pack)
                     : fmt::format("out{0}[q{0}] = y{0}[0];\n", o);
  }
  body += "}\n";
  made.phases.push_back({.body = std::move(body), .blocks = blocks_for(gpu, count)});
  return made;
}

}  // namespace tessera::cuda
