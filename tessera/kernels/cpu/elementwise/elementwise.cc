// The elementwise operators one at a time: each is a tile program of one instruction.
#include <algorithm>

#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/tile_program.h"

namespace tessera::kernels::cpu {
namespace {

bool is_f32_or_half(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

enum class Operands {
  kFloating,  // inputs of one floating dtype; the output of the same
  kCompared,  // inputs of one floating dtype; a bool output
  kBool,      // all bool
  kSelect,    // bool, then two of the output's dtype
  kCast,      // any to any
};

bool takes(const KernelRequest& request, Operands operands) {
  const auto& in = request.inputs;
  const DType out = request.outputs[0].dtype;
  const auto all_inputs = [&](size_t first, DType dtype) {
    return std::all_of(in.begin() + static_cast<std::ptrdiff_t>(first), in.end(),
                       [&](const TensorView& view) { return view.dtype == dtype; });
  };
  switch (operands) {
    case Operands::kFloating: return is_f32_or_half(out) && all_inputs(0, out);
    case Operands::kCompared: return out == DType::kBool && is_f32_or_half(in[0].dtype) && all_inputs(0, in[0].dtype);
    case Operands::kBool: return out == DType::kBool && all_inputs(0, DType::kBool);
    case Operands::kSelect: return is_f32_or_half(out) && in[0].dtype == DType::kBool && all_inputs(1, out);
    case Operands::kCast: return true;
  }
  return false;
}

std::optional<PreparedKernel> prepare(const KernelRequest& request, RowOp op, Operands operands) {
  const int arity = row_op_info(op).arity;
  if (static_cast<int>(request.inputs.size()) != arity || request.outputs.size() != 1) return std::nullopt;
  if (!takes(request, operands)) return std::nullopt;
  TileProgram program;
  program.num_inputs = arity;
  program.results = {program.add(op, 0, arity > 1 ? 1 : -1, arity > 2 ? 2 : -1)};
  return prepare_tile_program(request, std::move(program), "cpu." + request.op);
}

}  // namespace

void add_elementwise(KernelRegistry& registry) {
  const auto add = [&](RowOp op, Operands operands) {
    registry.add(std::string(row_op_info(op).name),
                 [=](const KernelRequest& request) { return prepare(request, op, operands); });
  };
  using enum RowOp;
  for (const RowOp op : {kNeg, kAbs,     kSign,    kFloor,   kSqrt,     kRsqrt,       kReciprocal, kExp, kLog,
                         kSin, kCos,     kRelu,    kSigmoid, kTanh,     kSquare,      kAdd,        kSub, kMul,
                         kDiv, kMaximum, kMinimum, kPow,     kReluGrad, kSigmoidGrad, kTanhGrad}) {
    add(op, Operands::kFloating);
  }
  for (const RowOp op : {kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIsFinite}) {
    add(op, Operands::kCompared);
  }
  for (const RowOp op : {kLogicalNot, kLogicalAnd, kLogicalOr, kLogicalXor}) add(op, Operands::kBool);
  add(kSelect, Operands::kSelect);
  registry.add("cast", [](const KernelRequest& request) { return prepare(request, kCopy, Operands::kCast); });
  registry.add("gelu", [](const KernelRequest& request) {
    return prepare(request, request.attributes.get_bool("approximate") ? kGeluTanh : kGeluErf, Operands::kFloating);
  });
  registry.add("gelu_grad", [](const KernelRequest& request) {
    return prepare(request, request.attributes.get_bool("approximate") ? kGeluTanhGrad : kGeluErfGrad,
                   Operands::kFloating);
  });
}

}  // namespace tessera::kernels::cpu
