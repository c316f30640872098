// fused_matmul: oneDNN's matmul with the program as its bias and post-ops, which it computes before an element of the
// product is written; where the program is none of these, the product in scratch memory and a pass of the tile program
// over it.

#include "tessera/kernels/cpu/elementwise/fused_elementwise.h"
#include "tessera/kernels/cpu/matmul/onednn_matmul.h"
#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/tensor/kernel_chain.h"

namespace tessera::kernels::cpu {
namespace {

using dnnl::algorithm;

// A value as oneDNN's [m or 1, n or 1]; nullopt for what cannot be read so.
std::optional<dnnl::memory::desc> value_desc(const TensorView& value) {
  const auto dtype = onednn_dtype(value.dtype);
  const int ndim = value.shape.ndim();
  if (!dtype || ndim > 2) return std::nullopt;
  const int64_t rows = ndim == 2 ? value.shape[0] : 1;
  const int64_t columns = ndim >= 1 ? value.shape[ndim - 1] : 1;
  const bool dense_rows = columns == 1 || value.strides[ndim - 1] == 1;
  const int64_t row_stride = rows == 1 ? columns : value.strides[0];
  if (!dense_rows || row_stride < columns) return std::nullopt;
  return dnnl::memory::desc({rows, columns}, *dtype, {row_stride, 1});
}

// The program as an epilogue: a chain in which each result is the next one's operand.
class EpilogueMaker {
 public:
  EpilogueMaker(const KernelRequest& request, const TileProgram& program) : request_(request), program_(program) {}

  std::optional<MatmulEpilogue> make() {
    const int first_result = program_.num_inputs + static_cast<int>(program_.constants.size());
    int product = 0;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (!add(program_.instructions[i], product, i == 0)) return std::nullopt;
      product = first_result + static_cast<int>(i);
    }
    if (program_.results != std::vector<int>{product}) return std::nullopt;
    epilogue_.post_ops = post_ops_;
    return epilogue_;
  }

 private:
  bool add(const TileInstruction& instruction, int product, bool first) {
    switch (instruction.op) {
      case ElementOp::kGeluTanh: return unary(algorithm::eltwise_gelu_tanh, instruction, product);
      case ElementOp::kGeluErf: return unary(algorithm::eltwise_gelu_erf, instruction, product);
      case ElementOp::kTanh: return unary(algorithm::eltwise_tanh, instruction, product);
      case ElementOp::kSigmoid: return unary(algorithm::eltwise_logistic, instruction, product);
      case ElementOp::kSquare: return unary(algorithm::eltwise_square, instruction, product);
      case ElementOp::kNeg: return instruction.a == product && linear(-1, 0);
      case ElementOp::kCopy: return instruction.a == product;
      case ElementOp::kAdd:
      case ElementOp::kSub:
      case ElementOp::kMul:
      case ElementOp::kDiv: return binary(instruction, product, first);
      // relu among them: oneDNN's makes 0 of NaN.
      default: return false;
    }
  }

  bool unary(algorithm kind, const TileInstruction& instruction, int product) {
    if (instruction.a != product) return false;
    post_ops_.append_eltwise(kind, 0, 0);
    return true;
  }

  bool linear(float scale, float shift) {
    post_ops_.append_eltwise(algorithm::eltwise_linear, scale, shift);
    return true;
  }

  bool binary(const TileInstruction& instruction, int product, bool first) {
    const bool reversed = instruction.b == product;  // other - product
    const int other = reversed ? instruction.a : instruction.b;
    if (!reversed && instruction.a != product) return false;
    const ElementOp op = instruction.op;
    if (other >= program_.num_inputs) {
      const int constant = other - program_.num_inputs;
      if (constant >= static_cast<int>(program_.constants.size())) return false;  // a result of before
      const float number = program_.constants[static_cast<size_t>(constant)];
      if (op == ElementOp::kAdd) return linear(1, number);
      if (op == ElementOp::kMul) return linear(number, 0);
      if (op == ElementOp::kSub) return reversed ? linear(-1, number) : linear(1, -number);
      return !reversed && linear(1 / number, 0);
    }
    if (other == 0) return false;  // the product with itself
    const auto input = static_cast<size_t>(other) + 1;
    const auto desc = value_desc(request_.inputs[input]);
    if (!desc) return false;
    const auto dims = desc->get_dims();
    if (first && op == ElementOp::kAdd && dims[0] == 1 && dims[1] == request_.outputs[0].shape[1]) {
      epilogue_.bias = *desc;
      epilogue_.values.push_back({input, DNNL_ARG_BIAS, *desc});
      return true;
    }
    if (reversed && op == ElementOp::kDiv) return false;
    if (reversed && op == ElementOp::kSub) linear(-1, 0);
    const bool adds = op == ElementOp::kAdd || (reversed && op == ElementOp::kSub);
    const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(post_ops_.len()) | DNNL_ARG_SRC_1;
    post_ops_.append_binary(adds                    ? algorithm::binary_add
                            : op == ElementOp::kSub ? algorithm::binary_sub
                            : op == ElementOp::kMul ? algorithm::binary_mul
                                                    : algorithm::binary_div,
                            *desc);
    epilogue_.values.push_back({input, argument, *desc});
    return true;
  }

  const KernelRequest& request_;
  const TileProgram& program_;
  dnnl::post_ops post_ops_;
  MatmulEpilogue epilogue_;
};

// The product in scratch memory, and the program over it.
std::optional<PreparedKernel> prepare_two_passes(const KernelRequest& request, const TileProgram& program) {
  const TensorView product(nullptr, {DType::kF32, request.outputs[0].shape});
  KernelRequest multiply = request;
  multiply.inputs.resize(2);
  multiply.outputs = {product};
  auto multiplied = prepare_matmul(multiply);
  KernelRequest finish = request;
  finish.inputs.assign({product});
  finish.inputs.insert(finish.inputs.end(), request.inputs.begin() + 2, request.inputs.end());
  auto finished = prepare_tile_program(finish, program, "");
  if (!multiplied || !finished) return std::nullopt;
  return chain_kernels("onednn.matmul+cpu.fused_elementwise", std::move(*multiplied), std::move(*finished),
                       std::move(finish.inputs));
}

std::optional<PreparedKernel> prepare(const KernelRequest& request) {
  const TileProgram program = parse_tile_program(request.attributes.get_string("program"),
                                                 static_cast<int>(request.inputs.size()) - 1, /*num_outputs=*/1);
  if (request.outputs[0].num_elements() == 0) return std::nullopt;
  if (const auto epilogue = EpilogueMaker(request, program).make()) {
    if (auto kernel = prepare_matmul(request, *epilogue)) return kernel;
  }
  return prepare_two_passes(request, program);
}

}  // namespace

void add_fused_matmul(KernelRegistry& registry) { registry.add("fused_matmul", prepare); }

}  // namespace tessera::kernels::cpu
