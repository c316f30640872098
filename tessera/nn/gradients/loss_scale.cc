#include "tessera/nn/gradients/loss_scale.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::nn {
namespace {

using ir::Value;

Parameter state(const std::string& name, DType dtype, double value) {
  return {.name = name,
          .type = {dtype, {}},
          .init = constant(value),
          .requires_grad = false,
          .kind = ir::InputKind::kState};
}

Parameter scale_state(const LossScale& loss_scale) { return state(kLossScale, DType::kF32, loss_scale.initial); }
Parameter clean_steps_state() { return state("loss_scale_clean_steps", DType::kI32, 0); }

Value finite(Value x, Value like) { return ops::apply1("all_finite", {x, like}); }

Value and_finite(Value all, std::span<const ParameterGradient> gradients) {
  for (const auto& pair : gradients) {
    if (pair.rows) {
      // Where it is, so is the sum of those rows that belong to one row of the parameter.
      const Value sum = ops::reduce_sum(ops::abs(pair.rows->rows), {0});
      all = ops::logical_and(all, finite(sum, sum));
    } else {
      all = ops::logical_and(all, finite(pair.gradient, pair.parameter->in(pair.gradient.graph())));
    }
  }
  return all;
}

}  // namespace

LossScale dynamic_loss_scale(const DynamicLossScaleOptions& options) {
  if (!(options.init_loss_scale >= 1) || !std::isfinite(options.init_loss_scale)) {
    throw InvalidArgument("dynamic_loss_scale: init_loss_scale must be finite and at least 1, got {}",
                          options.init_loss_scale);
  }
  if (!(options.scale_factor > 1) || !std::isfinite(options.scale_factor) || options.scale_window < 1) {
    throw InvalidArgument("dynamic_loss_scale: scale_factor must be above 1 and scale_window at least 1, got {} and {}",
                          options.scale_factor, options.scale_window);
  }
  return {.initial = options.init_loss_scale, .factor = options.scale_factor, .window = options.scale_window};
}

std::string to_string(const LossScale& loss_scale) {
  std::string text = fmt::format("{}", loss_scale.initial);
  if (loss_scale.is_dynamic()) {
    text += fmt::format(", times {} after {} clean steps", loss_scale.factor, loss_scale.window);
  }
  return loss_scale.drop_overflow_update ? text : text + ", unchecked";
}

LossScale fixed_loss_scale(double loss_scale, bool drop_overflow_update) {
  if (!(loss_scale > 0) || !std::isfinite(loss_scale)) {
    throw InvalidArgument("fixed_loss_scale: loss_scale must be finite and positive, got {}", loss_scale);
  }
  return {.initial = loss_scale, .drop_overflow_update = drop_overflow_update};
}

std::vector<Parameter> loss_scale_states(const LossScale& loss_scale) {
  std::vector<Parameter> states = {scale_state(loss_scale)};
  if (loss_scale.is_dynamic()) states.push_back(clean_steps_state());
  return states;
}

Parameter accumulated_overflow_state() { return state(kAccumulatedOverflow, DType::kI32, 0); }

Value loss_scale_in(ir::Graph& graph, const LossScale& loss_scale) { return scale_state(loss_scale).in(graph); }

std::vector<ParameterGradient> unscaled(const LossScale& loss_scale, std::span<const ParameterGradient> gradients) {
  std::vector<ParameterGradient> result(gradients.begin(), gradients.end());
  for (auto& pair : result) {
    Value& gradient = pair.rows ? pair.rows->rows : pair.gradient;
    const ir::SourceScope scope(gradient.graph(), kLossScale);
    const DType dtype = at_least_f32(gradient.dtype());
    const Value inverse = ops::cast(ops::reciprocal(loss_scale_in(gradient.graph(), loss_scale)), dtype);
    gradient = ops::mul(ops::cast(gradient, dtype), inverse);
  }
  return result;
}

Value all_finite(std::span<const ParameterGradient> gradients, Value loss) {
  const ir::SourceScope scope(loss.graph(), kLossScale);
  return and_finite(finite(loss, loss), gradients);
}

Value all_finite_and_none_noted(ir::Graph& graph, std::span<const ParameterGradient> gradients) {
  const ir::SourceScope scope(graph, kLossScale);
  return and_finite(ops::equal(accumulated_overflow_state().in(graph), 0), gradients);
}

Value note_overflow(Value loss) {
  const ir::SourceScope scope(loss.graph(), kLossScale);
  const Parameter overflow = accumulated_overflow_state();
  const Value is_finite = finite(loss, loss);
  overflow.assign(ops::select(is_finite, overflow.in(loss.graph()), 1));
  return is_finite;
}

Value without_noted_overflow(Value finite) {
  const ir::SourceScope scope(finite.graph(), kLossScale);
  const Parameter overflow = accumulated_overflow_state();
  const Value noted = overflow.in(finite.graph());
  overflow.assign(ops::zeros_like(noted));
  return ops::logical_and(finite, ops::equal(noted, 0));
}

void guard_assignments(ir::Graph& graph, Value finite) {
  const ir::SourceScope scope(graph, kLossScale);
  const auto assignments = graph.assignments();
  for (const auto& [name, now] : assignments) {
    if (is_accumulation_state(name)) continue;
    const Value before = graph.value(graph.find_input(name)->value);
    graph.assign(name, ops::select(finite, graph.value(now), before));
  }
  graph.add_output(ir::kUpdateGuard, finite);
}

void update_loss_scale(const LossScale& loss_scale, Value finite) {
  if (!loss_scale.is_dynamic()) return;
  ir::Graph& graph = finite.graph();
  const ir::SourceScope scope(graph, kLossScale);
  const Parameter scale = scale_state(loss_scale);
  const Parameter clean_steps = clean_steps_state();
  const Value before = scale.in(graph);
  const Value steps = ops::select(finite, ops::add(clean_steps.in(graph), 1), 0);
  const Value grows = ops::equal(steps, loss_scale.window);
  const Value larger = ops::select(grows, ops::mul(before, loss_scale.factor), before);
  const Value smaller = ops::maximum(ops::div(before, loss_scale.factor), 1.0);
  scale.assign(ops::select(finite, larger, smaller));
  clean_steps.assign(ops::select(grows, 0, steps));
}

}  // namespace tessera::nn
