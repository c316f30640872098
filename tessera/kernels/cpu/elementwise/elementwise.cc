// The elementwise operators one at a time: each is a tile program of one instruction.
#include <algorithm>

#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/tile_program.h"

namespace tessera::kernels::cpu {
namespace {

bool is_f32_or_half(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

bool takes(const KernelRequest& request, ElementTypes types) {
  const auto& in = request.inputs;
  const DType out = request.outputs[0].dtype;
  const auto all_inputs = [&](size_t first, DType dtype) {
    return std::all_of(in.begin() + static_cast<std::ptrdiff_t>(first), in.end(),
                       [&](const TensorView& view) { return view.dtype == dtype; });
  };
  switch (types) {
    case ElementTypes::kNumeric:
    case ElementTypes::kFloating:
    case ElementTypes::kForm: return is_f32_or_half(out) && all_inputs(0, out);
    case ElementTypes::kCompared:
      return out == DType::kBool && is_f32_or_half(in[0].dtype) && all_inputs(0, in[0].dtype);
    case ElementTypes::kBool: return out == DType::kBool && all_inputs(0, DType::kBool);
    case ElementTypes::kSelect: return is_f32_or_half(out) && in[0].dtype == DType::kBool && all_inputs(1, out);
  }
  return false;
}

std::optional<PreparedKernel> prepare_any(const KernelRequest& request, ElementOp op) {
  const int arity = info_of(op).arity;
  if (static_cast<int>(request.inputs.size()) != arity || request.outputs.size() != 1) return std::nullopt;
  TileProgram program;
  program.num_inputs = arity;
  program.results = {program.add(op, 0, arity > 1 ? 1 : -1, arity > 2 ? 2 : -1)};
  return prepare_tile_program(request, std::move(program), "cpu." + request.op);
}

std::optional<PreparedKernel> prepare(const KernelRequest& request, ElementOp op) {
  return takes(request, info_of(op).types) ? prepare_any(request, op) : std::nullopt;
}

}  // namespace

void add_elementwise(KernelRegistry& registry) {
  using enum ElementOp;
  for (const ElementOpInfo& info : kElementOps) {
    if (info.types == ElementTypes::kForm) continue;
    registry.add(std::string(info.name), [op = info.op](const KernelRequest& request) { return prepare(request, op); });
  }
  registry.add("cast", [](const KernelRequest& request) { return prepare_any(request, kCopy); });
  registry.add("gelu", [](const KernelRequest& request) {
    return prepare(request, request.attributes.get_bool("approximate") ? kGeluTanh : kGeluErf);
  });
  registry.add("gelu_grad", [](const KernelRequest& request) {
    return prepare(request, request.attributes.get_bool("approximate") ? kGeluTanhGrad : kGeluErfGrad);
  });
}

}  // namespace tessera::kernels::cpu
