#include "tessera/nn/gradients/gradient_accumulation.h"

#include "tessera/nn/initializers.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

constexpr const char* kPrefix = "accu_grads.";

Parameter accumulator_of(const Parameter& parameter) {
  return {.name = kPrefix + parameter.full_name(),
          .type = {at_least_f32(parameter.type.dtype), parameter.type.shape},
          .init = zeros(),
          .requires_grad = false,
          .kind = ir::InputKind::kState,
          .layerwise_parallel = parameter.layerwise_parallel};
}

// What the accumulator holds once this gradient is added.
ir::Value sum_with(const Parameter& accumulator, const ir::Value& gradient) {
  const ir::Value held = accumulator.in(gradient.graph());
  return ops::add(held, ops::cast(gradient, accumulator.type.dtype));
}

}  // namespace

bool is_accumulation_state(const std::string& name) {
  return name == kAccumulatedSteps || name == kAccumulatedOverflow || is_accumulated_gradient(name);
}

bool is_accumulated_gradient(const std::string& name) { return name.starts_with(kPrefix); }

std::vector<Parameter> gradient_accumulators(std::span<Parameter* const> parameters) {
  std::vector<Parameter> result;
  for (const Parameter* parameter : parameters) result.push_back(accumulator_of(*parameter));
  return result;
}

void accumulate(ir::Graph& graph, std::span<const ParameterGradient> gradients) {
  const ir::SourceScope scope(graph, "accumulate");
  for (const auto& [parameter, gradient] : gradients) {
    const Parameter accumulator = accumulator_of(*parameter);
    accumulator.assign(sum_with(accumulator, gradient));
  }
}

std::vector<ParameterGradient> accumulated(ir::Graph& graph, std::span<const ParameterGradient> gradients) {
  const ir::SourceScope scope(graph, "accumulate");
  std::vector<ParameterGradient> sums;
  for (const auto& [parameter, gradient] : gradients) {
    const Parameter accumulator = accumulator_of(*parameter);
    sums.push_back({parameter, sum_with(accumulator, gradient)});
    accumulator.assign(ops::zeros_like(accumulator.in(graph)));
  }
  return sums;
}

std::vector<ParameterGradient> held_gradients(ir::Graph& graph, std::span<Parameter* const> parameters) {
  std::vector<ParameterGradient> sums;
  for (const Parameter* parameter : parameters) sums.push_back({parameter, accumulator_of(*parameter).in(graph)});
  return sums;
}

}  // namespace tessera::nn
