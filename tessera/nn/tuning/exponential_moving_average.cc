#include "tessera/nn/tuning/exponential_moving_average.h"

#include "tessera/base/error.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/nn/number_checks.h"
#include "tessera/nn/optimizers/base_optimizer.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

constexpr const char* kAverager = "ExponentialMovingAverage";

void require_steps(const char* what, int64_t steps) {
  if (steps < 0) throw InvalidArgument("{}: {} must be at least 0, got {}", kAverager, what, steps);
}

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(Optimizer& optimizer, const MovingAverageOptions& options)
    : optimizer_(optimizer), options_(options) {
  require_in(kAverager, "decay", options.decay, 0, 1);
  require_steps("start_step", options.start_step);
  require_steps("overwrite_steps", options.overwrite_steps);
}

void ExponentialMovingAverage::update(ir::Graph& graph, std::span<const ParameterGradient> gradients) {
  optimizer_.update(graph, gradients);
  const ir::SourceScope scope(graph, "moving_average");
  const ir::Value count = counter().in(graph);
  const ir::Value step = ops::reshape(count, {});
  const ir::Value is_copied = ops::less_equal(step, options_.start_step);
  const ir::Value warm = options_.warms_up ? warm_weight(step) : ir::Value();
  const ir::Value next = ops::add(count, 1);
  ir::Value overwrites;
  if (options_.overwrite_steps > 0) {
    // Exact as long as f64 counts: the quotient of whole numbers is whole only where it is.
    const ir::Value turns =
        ops::div(ops::cast(ops::reshape(next, {}), DType::kF64), static_cast<double>(options_.overwrite_steps));
    overwrites = ops::equal(ops::floor(turns), turns);
  }
  for (const auto& pair : gradients) {
    const Parameter& parameter = *pair.parameter;
    const Parameter kept = average(parameter);
    const ir::Value value = ops::cast(parameter.in(graph), kept.type.dtype);
    const ir::Value before = kept.in(graph);
    // The difference reads the new value first: the average comes to lie as that does.
    const ops::Operand weight = warm ? ops::Operand(scalar_for(parameter, warm)) : ops::Operand(1 - options_.decay);
    const ir::Value moved = before + ops::mul(value - before, weight);
    const ir::Value now = ops::select(is_copied, value, moved);
    kept.assign(now);
    if (!overwrites) continue;
    const ir::Value rounded = ops::cast(now, parameter.type.dtype);
    parameter.assign(ops::select(overwrites, rounded, parameter.in(graph)));
  }
  counter().assign(next);
}

std::vector<Parameter> ExponentialMovingAverage::states(std::span<Parameter* const> parameters) const {
  std::vector<Parameter> result = optimizer_.states(parameters);
  result.push_back(counter());
  for (const Parameter* parameter : parameters) result.push_back(average(*parameter));
  return result;
}

void ExponentialMovingAverage::set_state_prefix(const std::string& prefix) {
  state_prefix_ = prefix;
  optimizer_.set_state_prefix(prefix);
}

std::string ExponentialMovingAverage::average_of(const Parameter& parameter) const { return average(parameter).name; }

std::string ExponentialMovingAverage::average_counter() const { return counter().name; }

Parameter ExponentialMovingAverage::counter() const {
  return {.name = state_prefix_ + "ema_step",
          .type = {DType::kI32, {1}},
          .init = zeros(),
          .requires_grad = false,
          .kind = ir::InputKind::kState};
}

Parameter ExponentialMovingAverage::average(const Parameter& parameter) const {
  return {.name = state_prefix_ + "ema." + parameter.full_name(),
          .type = {at_least_f32(parameter.type.dtype), parameter.type.shape},
          .init = zeros(),
          .requires_grad = false,
          .kind = ir::InputKind::kState,
          .layerwise_parallel = parameter.layerwise_parallel};
}

ir::Value ExponentialMovingAverage::warm_weight(const ir::Value& step) const {
  const ir::Value averaged = ops::cast(step, DType::kF64) - static_cast<double>(options_.start_step);
  return 1.0 - ops::minimum((averaged + 1.0) / (averaged + 10.0), options_.decay);
}

}  // namespace tessera::nn
