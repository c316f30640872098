// fused_elementwise, element by element: the program's text is interpreted as
// kernels/cpu/elementwise/fused_elementwise.h states it; fused_matmul: the product in scratch memory, then that.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/matmul.h"
#include "tessera/tensor/kernel_chain.h"

namespace tessera::kernels::reference {
namespace {

using Function = std::function<double(double, double, double)>;

template <typename T>
double gelu_tanh_grad(T dy, T x) {
  const T scale = std::sqrt(T(2) / std::acos(T(-1)));
  const T t = std::tanh(scale * (x + T(0.044715) * x * x * x));
  return dy * (T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * scale * (1 + T(3 * 0.044715) * x * x));
}
template <typename T>
double gelu_erf_grad(T dy, T x) {
  const T cdf = T(0.5) * (1 + std::erf(x / std::sqrt(T(2))));
  return dy * (cdf + x * std::exp(T(-0.5) * x * x) / std::sqrt(2 * std::acos(T(-1))));
}

struct Operator {
  int arity;
  Function run;
};

// The operators in arithmetic of T (a double holds every float, so that passing them as double changes nothing).
template <typename T>
const std::map<std::string, Operator>& operators() {
  static const auto unary = [](auto f) {
    return Operator{1, [f](double a, double, double) { return static_cast<double>(f(static_cast<T>(a))); }};
  };
  static const auto binary = [](auto f) {
    return Operator{
        2, [f](double a, double b, double) { return static_cast<double>(f(static_cast<T>(a), static_cast<T>(b))); }};
  };
  static const std::map<std::string, Operator> table = {
      {"copy", unary([](T a) { return a; })},
      {"neg", unary([](T a) { return -a; })},
      {"abs", unary([](T a) { return std::abs(a); })},
      {"sign", unary([](T a) { return a > 0   ? T(1)
                                      : a < 0 ? T(-1)
                                              : a; })},
      {"floor", unary([](T a) { return std::floor(a); })},
      {"sqrt", unary([](T a) { return std::sqrt(a); })},
      {"rsqrt", unary([](T a) { return 1 / std::sqrt(a); })},
      {"reciprocal", unary([](T a) { return 1 / a; })},
      {"exp", unary([](T a) { return std::exp(a); })},
      {"log", unary([](T a) { return std::log(a); })},
      {"sin", unary([](T a) { return std::sin(a); })},
      {"cos", unary([](T a) { return std::cos(a); })},
      {"relu", unary([](T a) { return a <= 0 ? T(0) : a; })},
      {"sigmoid", unary([](T a) { return 1 / (1 + std::exp(-a)); })},
      {"tanh", unary([](T a) { return std::tanh(a); })},
      {"square", unary([](T a) { return a * a; })},
      {"gelu_tanh", unary([](T a) {
         const T scale = std::sqrt(T(2) / std::acos(T(-1)));
         return T(0.5) * a * (1 + std::tanh(scale * (a + T(0.044715) * a * a * a)));
       })},
      {"gelu_erf", unary([](T a) { return T(0.5) * a * (1 + std::erf(a / std::sqrt(T(2)))); })},
      {"is_finite", unary([](T a) { return std::isfinite(a); })},
      {"logical_not", unary([](T a) { return a == 0; })},
      {"round_bf16", unary([](T a) { return static_cast<float>(BFloat16(static_cast<float>(a))); })},
      {"round_f16", unary([](T a) { return static_cast<float>(Float16(static_cast<float>(a))); })},
      {"add", binary([](T a, T b) { return a + b; })},
      {"sub", binary([](T a, T b) { return a - b; })},
      {"mul", binary([](T a, T b) { return a * b; })},
      {"div", binary([](T a, T b) { return a / b; })},
      {"maximum", binary([](T a, T b) { return std::isnan(a) || a > b ? a : b; })},
      {"minimum", binary([](T a, T b) { return std::isnan(a) || a < b ? a : b; })},
      {"pow", binary([](T a, T b) { return std::pow(a, b); })},
      {"relu_grad", binary([](T dy, T y) { return y > 0 ? dy : T(0); })},
      {"sigmoid_grad", binary([](T dy, T y) { return dy * y * (1 - y); })},
      {"tanh_grad", binary([](T dy, T y) { return dy * (1 - y * y); })},
      {"gelu_tanh_grad", binary([](T dy, T x) { return gelu_tanh_grad(dy, x); })},
      {"gelu_erf_grad", binary([](T dy, T x) { return gelu_erf_grad(dy, x); })},
      {"equal", binary([](T a, T b) { return a == b; })},
      {"not_equal", binary([](T a, T b) { return a != b; })},
      {"less", binary([](T a, T b) { return a < b; })},
      {"less_equal", binary([](T a, T b) { return a <= b; })},
      {"greater", binary([](T a, T b) { return a > b; })},
      {"greater_equal", binary([](T a, T b) { return a >= b; })},
      {"logical_and", binary([](T a, T b) { return a != 0 && b != 0; })},
      {"logical_or", binary([](T a, T b) { return a != 0 || b != 0; })},
      {"logical_xor", binary([](T a, T b) { return (a != 0) != (b != 0); })},
      {"select", {3, [](double a, double b, double c) { return a != 0 ? b : c; }}},
  };
  return table;
}

// values[i] of a program: first the inputs, then the constants and results in the order of the text.
struct Step {
  Function run;  // absent for a constant
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
    if (*end != 0) {
      throw InvalidArgument("fused_elementwise: operand \"{}\" is not defined before its use in \"{}\"", word, text);
    }
    return append({nullptr, number});
  };
  std::istringstream statements(text);
  for (std::string statement; std::getline(statements, statement, ';');) {
    std::replace(statement.begin(), statement.end(), '=', ' ');
    std::istringstream words(statement);
    std::string name;
    std::string word;
    words >> name;
    if (name == "return") {
      while (words >> word) program.results.push_back(operand(word));
      break;
    }
    words >> word;
    const auto op = operators<T>().find(word);
    if (op == operators<T>().end())
      throw InvalidArgument("fused_elementwise: no operator \"{}\" in \"{}\"", word, text);
    Step step{op->second.run};
    int count = 0;
    for (; count < 3 && words >> word; ++count) step.operands[count] = operand(word);
    if (count != op->second.arity || words >> word) {
      throw InvalidArgument("fused_elementwise: {} takes {} operands in \"{}\"", op->first, op->second.arity, text);
    }
    names[name] = append(step);
  }
  if (program.results.size() != num_outputs) {
    throw InvalidArgument("fused_elementwise: program returns {} values, the node has {} outputs",
                          program.results.size(), num_outputs);
  }
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
      values[next++] = step.run ? step.run(values[a], values[b], values[c]) : step.constant;
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
