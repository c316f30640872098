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

// With a spatial size of 1x1, or one channel, both orders are the same memory.
bool tells_order(const Type& type) {
  return type.shape.ndim() == 4 && type.shape[1] > 1 && type.shape[2] * type.shape[3] > 1;
}

bool is_channels_last_image(const ir::ScheduledValue& value) {
  return is_channels_last(value.type.shape, value.strides);
}

const ops::OpDef* find_def(const std::string& op) { return ops::OpRegistry::instance().find(op); }

bool works_channels_last(const std::string& op) {
  const auto* def = find_def(op);
  return def != nullptr && def->images != ops::ImageOrder::kAsTheyCome;
}

// The weight of a convolution, or its gradient, is four-dim and no image.
bool is_weight(const std::string& op, const ops::OperandOrResult& place) {
  const auto* def = find_def(op);
  return def != nullptr && def->convolution && def->convolution->weight == place;
}

// The bytes of the longest pieces that lie together, in one order, in both of two views.
int64_t common_piece_bytes(const Type& type, const Strides& from, const Strides& to) {
  int64_t run = 1;
  for (bool grows = true; grows;) {
    grows = false;
    for (int d = 0; d < type.shape.ndim(); ++d) {
      if (type.shape[d] == 1 || from[d] != run || to[d] != run) continue;
      run *= type.shape[d];
      grows = true;
      break;
    }
  }
  return run * static_cast<int64_t>(size_bytes(type.dtype));
}

}  // namespace

std::optional<ConvolutionSize> convolution_size(const std::string& op, const Attributes& attributes,
                                                std::span<const Type> inputs, std::span<const Type> outputs) {
  const auto* def = find_def(op);
  if (def == nullptr || !def->convolution) return std::nullopt;
  const auto at = [&](const ops::OperandOrResult& place) -> const Shape& {
    return (place.is_result ? outputs : inputs)[place.index].shape;
  };
  const Shape& results = at(def->convolution->results);
  const Shape& weight = at(def->convolution->weight);
  const int64_t groups = attributes.has("groups") ? attributes.get_int("groups") : 1;
  ConvolutionSize size{.op = op,
                       .is_pointwise = weight[2] * weight[3] == 1,
                       .in_channels = std::max<int64_t>(weight[1], 1),
                       .out_channels = std::max<int64_t>(weight[0] / std::max<int64_t>(groups, 1), 1),
                       .pixels = results[0] * results[2] * results[3]};
  if (attributes.has("strides")) {
    const Ints& strides = attributes.get_ints("strides");
    size.is_strided = std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride > 1; });
  }
  return size;
}

double operator_seconds(const std::string& op, const Attributes& attributes, std::span<const Type> inputs,
                        std::span<const Type> outputs, const MachineProfile& profile) {
  const auto cost = ops::cost_of(ops::OpRegistry::instance().get(op), attributes, inputs, outputs);
  double flops = cost.flops;
  if (const auto size = convolution_size(op, attributes, inputs, outputs)) {
    flops /= profile.convolution_shares.of(*size);
  }
  return profile.work_seconds(op, compute_dtype(inputs, outputs), flops, cost.bytes);
}

double rearranging_seconds(const std::string& op, std::span<const ir::ScheduledValue> inputs,
                           std::span<const ir::ScheduledValue> outputs, const MachineProfile& profile) {
  bool wants_channels_last = works_channels_last(op);
  if (!wants_channels_last) {
    if (outputs.empty() || !tells_order(outputs[0].type)) return 0;
    wants_channels_last = is_channels_last_image(outputs[0]);
  }
  // A convolution's kernels do it in their own way.
  const double own_speed = is_convolution(op) ? profile.rearranged_bytes_per_second : 0;
  double seconds = 0;
  const auto look = [&](std::span<const ir::ScheduledValue> values, bool are_results) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& value = values[i];
      if (!tells_order(value.type) || is_weight(op, {are_results, i})) continue;
      if (is_channels_last_image(value) == wants_channels_last) continue;
      const double bytes = 2.0 * static_cast<double>(value.type.size_bytes());
      seconds += own_speed > 0 ? std::max(bytes / profile.bytes_per_second_of(bytes), bytes / own_speed)
                               : profile.copy_seconds(bytes, static_cast<int64_t>(size_bytes(value.type.dtype)));
    }
  };
  look(inputs, false);
  look(outputs, true);
  return seconds;
}

double copy_seconds(const ir::ScheduledValue& from, const ir::ScheduledValue& to, const MachineProfile& profile) {
  const double bytes = static_cast<double>(from.type.size_bytes()) + static_cast<double>(to.type.size_bytes());
  return profile.kernel_overhead_seconds +
         profile.copy_seconds(bytes, common_piece_bytes(to.type, from.strides, to.strides));
}

}  // namespace tessera::compiler
