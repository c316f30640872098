#include "tessera/compiler/cost/operator_time.h"

#include <algorithm>

#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

DType compute_dtype(std::span<const Type> inputs, std::span<const Type> outputs) {
  for (const auto types : {inputs, outputs}) {
    for (const Type& type : types) {
      if (is_floating(type.dtype)) return type.dtype;
    }
  }
  return DType::kF32;
}

}  // namespace

std::optional<ConvolutionSize> convolution_size(const std::string& op, const Attributes& attributes,
                                                std::span<const Type> inputs, std::span<const Type> outputs) {
  const Type* results = nullptr;  // images of the convolution's results, or their cotangents
  const Type* weight = nullptr;
  if (op == "conv2d") {
    results = &outputs[0];
    weight = &inputs[1];
  } else if (op == "conv2d_grad_input") {
    results = &inputs[0];
    weight = &inputs[1];
  } else if (op == "conv2d_grad_weight") {
    results = &inputs[0];
    weight = &outputs[0];
  } else {
    return std::nullopt;
  }
  const int64_t groups = attributes.has("groups") ? attributes.get_int("groups") : 1;
  const int64_t result_channels = weight->shape[0] / std::max<int64_t>(groups, 1);
  return ConvolutionSize{.channels = std::max<int64_t>(std::min(weight->shape[1], result_channels), 1),
                         .pixels = results->shape[0] * results->shape[2] * results->shape[3]};
}

double operator_seconds(const std::string& op, const Attributes& attributes, std::span<const Type> inputs,
                        std::span<const Type> outputs, const MachineProfile& profile) {
  const auto cost = ops::cost_of(ops::OpRegistry::instance().get(op), attributes, inputs, outputs);
  double flops = cost.flops;
  if (const auto size = convolution_size(op, attributes, inputs, outputs)) {
    flops /= profile.convolution_share_of(size->channels, size->pixels);
  }
  return profile.work_seconds(op, compute_dtype(inputs, outputs), flops, cost.bytes);
}

}  // namespace tessera::compiler
