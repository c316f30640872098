// fused_elementwise, element by element: the program's text is interpreted as
// kernels/cpu/elementwise/fused_elementwise.h states it; fused_matmul: the product in scratch memory, then that.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/matmul.h"
#include "tessera/tensor/element_op.h"
#include "tessera/tensor/kernel_chain.h"
#include "tessera/tensor/program_text.h"

namespace tessera::kernels::reference {
namespace {

using Function = double (*)(double, double, double);

// What an element operator gives in arithmetic of T (a double holds every float, so that passing them as double changes
// nothing).
template <typename T, size_t kIndex>
double run_element_op(double a, double b, double c) {
  return static_cast<double>(
      element_value<kElementOps[kIndex].op>(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c)));
}

template <typename T>
Function function_of(ElementOp op) {
  static constexpr auto kFunctions = []<size_t... kIndices>(std::index_sequence<kIndices...>) {
    return std::array{run_element_op<T, kIndices>...};
  }
  (std::make_index_sequence<std::size(kElementOps)>());
  return kFunctions[static_cast<size_t>(op)];
}

// values[i] of a program: first the inputs, then the constants and results in the order of the text.
struct Step {
  Function run = nullptr;  // absent for a constant
  double constant = 0;
  size_t operands[3] = {0, 0, 0};
};
struct Program {
  size_t num_inputs = 0;
  std::vector<Step> steps;
  std::vector<size_t> results;
};

template <typename T>
Program parse(const std::string& text, size_t num_inputs, size_t num_outputs) {
  Program program{num_inputs, {}, {}};
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < num_inputs; ++i) names[fmt::format("a{}", i)] = i;
  const auto append = [&](Step step) {
    program.steps.push_back(std::move(step));
    return num_inputs + program.steps.size() - 1;
  };
  const auto operand = [&](const std::string& word) {
    if (const auto it = names.find(word); it != names.end()) return it->second;
    char* end = nullptr;
    const T number = std::is_same_v<T, float> ? std::strtof(word.c_str(), &end) : std::strtod(word.c_str(), &end);
    if (*end != 0) throw_undefined_operand(word, text);
    return append({nullptr, number});
  };
  const ProgramText read = read_program_text(text, num_outputs);
  for (const auto& statement : read.statements) {
    Step step{function_of<T>(statement.op)};
    for (size_t i = 0; i < statement.operands.size(); ++i) step.operands[i] = operand(statement.operands[i]);
    names[statement.name] = append(step);
  }
  for (const auto& result : read.results) program.results.push_back(operand(result));
  return program;
}

// The place in `view` of the element at `index` of a tensor of `ndim` dims that the view broadcasts to.
int64_t offset_of(const TensorView& view, const int64_t* index, int ndim) {
  int64_t offset = 0;
  const int missing = ndim - view.shape.ndim();
  for (int dim = 0; dim < view.shape.ndim(); ++dim) {
    if (view.shape[dim] != 1) offset += index[dim + missing] * view.strides[dim];
  }
  return offset;
}

void run(const Program& program, const KernelArgs& args, std::span<double> values) {
  const Shape& shape = args.outputs[0].shape;
  const int64_t n = shape.num_elements();
  for (int64_t element = 0; element < n; ++element) {
    int64_t index[kMaxNdim];
    for (int64_t rest = element, dim = shape.ndim() - 1; dim >= 0; --dim) {
      index[dim] = rest % shape[static_cast<int>(dim)];
      rest /= shape[static_cast<int>(dim)];
    }
    size_t next = 0;
    for (const TensorView& view : args.inputs) {
      values[next++] = dispatch_dtype(view.dtype, "fused_elementwise", [&]<typename T>(T) {
        return static_cast<double>(static_cast<const T*>(view.data)[offset_of(view, index, shape.ndim())]);
      });
    }
    for (const Step& step : program.steps) {
      const auto& [a, b, c] = step.operands;
      values[next++] = step.run != nullptr ? step.run(values[a], values[b], values[c]) : step.constant;
    }
    for (size_t o = 0; o < args.outputs.size(); ++o) {
      const TensorView& view = args.outputs[o];
      const double result = values[program.results[o]];
      dispatch_dtype(view.dtype, "fused_elementwise", [&]<typename T>(T) {
        T& to = static_cast<T*>(view.data)[offset_of(view, index, shape.ndim())];
        if constexpr (std::is_same_v<T, uint8_t>) {
          to = result > 0 ? static_cast<uint8_t>(std::min(result, 255.0)) : 0;
        } else if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
          to = static_cast<float>(result);
        } else {
          to = static_cast<T>(result);
        }
      });
    }
  }
}

std::optional<PreparedKernel> prepare(const KernelRequest& request) {
  const auto is_f64 = [](const TensorView& view) { return view.dtype == DType::kF64; };
  const bool wide = std::any_of(request.inputs.begin(), request.inputs.end(), is_f64) ||
                    std::any_of(request.outputs.begin(), request.outputs.end(), is_f64);
  const std::string& text = request.attributes.get_string("program");
  const size_t num_inputs = request.inputs.size();
  const size_t num_outputs = request.outputs.size();
  Program program = wide ? parse<double>(text, num_inputs, num_outputs) : parse<float>(text, num_inputs, num_outputs);
  const size_t num_values = num_inputs + program.steps.size();
  return PreparedKernel{.name = "reference.fused_elementwise",
                        .run =
                            [program = std::move(program), num_values](const KernelArgs& args) {
                              run(program, args, {reinterpret_cast<double*>(args.scratch.data()), num_values});
                            },
                        .scratch_bytes = static_cast<int64_t>(num_values * sizeof(double))};
}

std::optional<PreparedKernel> prepare_fused_matmul(const KernelRequest& request) {
  const DType product_dtype = request.inputs[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const TensorView product(nullptr, {product_dtype, request.outputs[0].shape});
  KernelRequest multiply = request;
  multiply.inputs.resize(2);
  multiply.outputs = {product};
  auto multiplied = prepare_matmul(multiply);
  KernelRequest finish = request;
  finish.inputs.assign({product});
  finish.inputs.insert(finish.inputs.end(), request.inputs.begin() + 2, request.inputs.end());
  auto finished = prepare(finish);
  if (!multiplied || !finished) return std::nullopt;
  return chain_kernels("reference.fused_matmul", std::move(*multiplied), std::move(*finished),
                       std::move(finish.inputs));
}

}  // namespace

void add_fused(KernelRegistry& registry) {
  registry.add("fused_elementwise", prepare);
  registry.add("fused_matmul", prepare_fused_matmul);
}

}  // namespace tessera::kernels::reference
