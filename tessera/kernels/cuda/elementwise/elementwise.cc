// Elementwise operators, casts and copies, and programs of several of them.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/core/families.h"
#include "tessera/kernels/cuda/core/writer.h"
#include "tessera/kernels/cuda/elementwise/element_program.h"

namespace tessera::cuda {
namespace {

// A program of one operator.
std::optional<DeviceProgram> write_one(const KernelRequest& request, const Gpu& gpu, ElementOp op) {
  ElementProgram program{.computed = computed_in(request.inputs.back().dtype)};
  std::vector<std::string> operands;
  for (int i = 0; i < info_of(op).arity; ++i) operands.push_back(fmt::format("a{}", i));
  program.results = {call_text(op, program.computed, operands)};
  return write_element_program(request, gpu, program, "cuda." + request.op);
}

std::optional<DeviceProgram> write_named(const KernelRequest& request, const Gpu& gpu) {
  return write_one(request, gpu, find_element_op(request.op).value());
}

std::optional<DeviceProgram> write_gelu(const KernelRequest& request, const Gpu& gpu) {
  const bool approximate = request.attributes.get_bool("approximate");
  return write_one(request, gpu, approximate ? ElementOp::kGeluTanh : ElementOp::kGeluErf);
}

std::optional<DeviceProgram> write_gelu_grad(const KernelRequest& request, const Gpu& gpu) {
  const bool approximate = request.attributes.get_bool("approximate");
  return write_one(request, gpu, approximate ? ElementOp::kGeluTanhGrad : ElementOp::kGeluErfGrad);
}

std::optional<DeviceProgram> write_select(const KernelRequest& request, const Gpu& gpu) {
  const ElementProgram program{.results = {"a0 ? a1 : a2"}, .keeps_bits = true};
  return write_element_program(request, gpu, program, "cuda.select");
}

// One to one, perhaps into another dtype.
std::optional<DeviceProgram> write_copy(const KernelRequest& request, const Gpu& gpu) {
  ElementProgram program{.keeps_bits = true};
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const DType to = request.outputs[i].dtype;
    program.results.push_back(request.inputs[i].dtype == to ? fmt::format("a{}", i)
                                                            : fmt::format("converted<{}>(a{})", to_string(to), i));
  }
  return write_element_program(request, gpu, program, "cuda." + request.op);
}

// Each output a copy of the input of its number: phases, because they may differ in shape.
std::optional<DeviceProgram> write_custom_gradient(const KernelRequest& request, const Gpu& gpu) {
  DeviceProgram all{.name = "cuda.custom_gradient"};
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    KernelRequest one = request;
    one.inputs = {request.inputs[i]};
    one.outputs = {request.outputs[i]};
    auto copy = write_copy(one, gpu);
    for (ProgramPhase& phase : copy->phases) {
      phase.body = fmt::format(
          "const auto* in = in{0}; auto* out = out{0};\n{{ const auto* in0 = in; auto* out0 = out;\n{1}}}\n", i,
          phase.body);
      all.phases.push_back(std::move(phase));
    }
  }
  return all;
}

// The bias lies along dim 1.
std::optional<DeviceProgram> write_bias_add(const KernelRequest& request, const Gpu& gpu) {
  const TensorView& y = request.outputs[0];
  const TensorView& bias = request.inputs[1];
  KernelRequest along = request;
  along.inputs[1].shape = y.shape;
  along.inputs[1].strides = y.strides;
  for (int d = 0; d < y.shape.ndim(); ++d) along.inputs[1].strides[d] = d == 1 ? bias.strides[0] : 0;
  ElementProgram program{.computed = computed_in(y.dtype)};
  program.results = {call_text(ElementOp::kAdd, program.computed, {"a0", "a1"})};
  DeviceProgram made = write_element_program(along, gpu, program, "cuda.bias_add");
  made.in_place = {};
  if (request.inputs[0].strides == y.strides) made.in_place = {{0, 0}};
  return made;
}

std::optional<DeviceProgram> write_fused(const KernelRequest& request, const Gpu& gpu) {
  bool in_f64 = false;
  for (const auto& view : request.inputs) in_f64 = in_f64 || view.dtype == DType::kF64;
  for (const auto& view : request.outputs) in_f64 = in_f64 || view.dtype == DType::kF64;
  const auto program = parse_element_program(request.attributes.get_string("program"), request.inputs.size(),
                                             request.outputs.size(), in_f64);
  return write_element_program(request, gpu, program, "cuda.fused_elementwise");
}

}  // namespace

void add_elementwise(KernelRegistry& registry, Gpu& gpu) {
  for (const ElementOpInfo& info : kElementOps) {
    if (info.types == ElementTypes::kForm || info.types == ElementTypes::kSelect) continue;
    add_writer(registry, gpu, std::string(info.name), write_named);
  }
  add_writer(registry, gpu, "gelu", write_gelu);
  add_writer(registry, gpu, "gelu_grad", write_gelu_grad);
  add_writer(registry, gpu, "select", write_select);
  add_writer(registry, gpu, "stop_gradient", write_copy);
  add_writer(registry, gpu, "cast", write_copy);
  add_writer(registry, gpu, "copy", write_copy);
  add_writer(registry, gpu, "custom_gradient", write_custom_gradient);
  add_writer(registry, gpu, "bias_add", write_bias_add);
  add_writer(registry, gpu, "fused_elementwise", write_fused);
}

}  // namespace tessera::cuda
