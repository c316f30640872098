#include "tessera/nn/gradients/gradient_accumulation.h"

#include <algorithm>

#include "tessera/nn/initializers.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

constexpr const char* kGradients = "accu_grads.";
constexpr const char* kLookups = "accu_lookups.";
constexpr const char* kIds = "accu_ids.";
constexpr const char* kRows = "accu_rows.";
constexpr const char* kCount = "accu_count.";
constexpr const char* kPrefixes[] = {kGradients, kLookups, kIds, kRows, kCount};

Parameter state_of(const char* prefix, const Parameter& parameter, const Type& type) {
  return {.name = prefix + parameter.full_name(),
          .type = type,
          .init = zeros(),
          .requires_grad = false,
          .kind = ir::InputKind::kState,
          .layerwise_parallel = parameter.layerwise_parallel};
}

Parameter accumulator_of(const Parameter& parameter) {
  return state_of(kGradients, parameter, {at_least_f32(parameter.type.dtype), parameter.type.shape});
}

Parameter lookup_accumulator_of(const Parameter& parameter) {
  return state_of(kLookups, parameter, {DType::kF32, {parameter.type.shape[0]}});
}

// What the accumulator holds once this gradient is added.
ir::Value sum_with(const Parameter& accumulator, const ir::Value& gradient) {
  const ir::Value held = accumulator.in(gradient.graph());
  return ops::add(held, ops::cast(gradient, accumulator.type.dtype));
}

// Puts the rows of a micro-batch behind those of the ones before it. Those of a step's only one are all there are.
void append(ir::Graph& graph, const Parameter& parameter, const RowGradient& gradient, int64_t micro_batches) {
  const int64_t count = gradient.ids.shape()[0];
  const auto with_room = [&](const Shape& of_one) {
    Shape shape = of_one;
    shape[0] *= micro_batches;
    return shape;
  };
  const Parameter ids = state_of(kIds, parameter, {gradient.ids.dtype(), with_room(gradient.ids.shape())});
  const Parameter rows =
      state_of(kRows, parameter, {at_least_f32(parameter.type.dtype), with_room(gradient.rows.shape())});
  if (micro_batches == 1) {
    ids.assign(gradient.ids);
    rows.assign(ops::cast(gradient.rows, rows.type.dtype));
    return;
  }
  const Parameter so_far = state_of(kCount, parameter, {DType::kI32, {}});
  const ir::Value begin = so_far.in(graph);
  const ir::Value places = ops::add(begin, ops::range(graph, 0, static_cast<double>(count)));
  ids.assign(ops::scatter_add(ids.in(graph), places, gradient.ids));
  rows.assign(ops::scatter_add(rows.in(graph), places, ops::cast(gradient.rows, rows.type.dtype)));
  so_far.assign(ops::add(begin, count));
}

}  // namespace

bool is_accumulation_state(const std::string& name) {
  return name == kAccumulatedSteps || name == kAccumulatedOverflow || is_accumulated_gradient(name);
}

bool is_accumulated_gradient(const std::string& name) {
  return std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); });
}

std::vector<Parameter> gradient_accumulators(std::span<Parameter* const> parameters) {
  std::vector<Parameter> result;
  for (const Parameter* parameter : parameters) result.push_back(accumulator_of(*parameter));
  return result;
}

std::vector<Parameter> lookup_accumulators(std::span<Parameter* const> parameters, const Optimizer& optimizer) {
  std::vector<Parameter> result;
  for (const Parameter* parameter : parameters) {
    if (optimizer.row_updates(*parameter) == RowUpdates::kAlways) result.push_back(lookup_accumulator_of(*parameter));
  }
  return result;
}

std::map<std::string, std::string> accumulators_by_name(std::span<Parameter* const> parameters) {
  std::map<std::string, std::string> names;
  for (const Parameter* parameter : parameters) {
    for (const char* prefix : kPrefixes) names[prefix + parameter->full_name()] = parameter->full_name();
  }
  return names;
}

void find_rows(std::vector<ParameterGradient>& gradients, const Optimizer& optimizer, const RowAccumulation* kept) {
  for (auto& pair : gradients) {
    const RowUpdates kind = optimizer.row_updates(*pair.parameter);
    if (!pair.gradient || kind == RowUpdates::kNever) continue;
    const auto count = num_looked_up(pair.gradient);
    const bool is_kept = kept == nullptr ||
                         (kept->parameters.contains(pair.parameter->full_name()) && looks_up_data_only(pair.gradient));
    const int64_t times = kept == nullptr ? 1 : kept->micro_batches;
    if (count && is_kept && takes_rows(optimizer, *pair.parameter, *count * times)) {
      pair.rows = row_gradient_of(pair.gradient);
      pair.gradient = {};
    } else if (kind == RowUpdates::kAlways) {
      pair.lookups = lookups_of(pair.gradient).value_or(ir::Value());
    }
  }
}

void accumulate(ir::Graph& graph, std::span<const ParameterGradient> gradients, const RowAccumulation& kept) {
  const ir::SourceScope scope(graph, "accumulate");
  for (const auto& pair : gradients) {
    if (pair.rows) {
      append(graph, *pair.parameter, *pair.rows, kept.micro_batches);
      continue;
    }
    const Parameter accumulator = accumulator_of(*pair.parameter);
    accumulator.assign(sum_with(accumulator, pair.gradient));
    if (!pair.lookups) continue;
    const Parameter lookups = lookup_accumulator_of(*pair.parameter);
    lookups.assign(sum_with(lookups, pair.lookups));
  }
}

std::vector<ParameterGradient> accumulated(ir::Graph& graph, std::span<const ParameterGradient> gradients) {
  const ir::SourceScope scope(graph, "accumulate");
  std::vector<ParameterGradient> sums;
  const auto take = [&](const Parameter& accumulator, const ir::Value& last) {
    const ir::Value sum = sum_with(accumulator, last);
    accumulator.assign(ops::zeros_like(accumulator.in(graph)));
    return sum;
  };
  for (const auto& pair : gradients) {
    ParameterGradient sum{.parameter = pair.parameter};
    sum.gradient = take(accumulator_of(*pair.parameter), pair.gradient);
    if (pair.lookups) sum.lookups = take(lookup_accumulator_of(*pair.parameter), pair.lookups);
    sums.push_back(std::move(sum));
  }
  return sums;
}

std::vector<ParameterGradient> held_gradients(ir::Graph& graph, std::span<Parameter* const> parameters,
                                              const ir::Graph* micro) {
  std::vector<ParameterGradient> sums;
  const auto held = [&](const char* prefix, const Parameter& parameter) -> ir::Value {
    const ir::Input* input = micro == nullptr ? nullptr : micro->find_input(prefix + parameter.full_name());
    if (input == nullptr) return {};
    return graph.add_input(ir::InputKind::kState, input->name, micro->type(input->value));
  };
  for (const Parameter* parameter : parameters) {
    ParameterGradient sum{.parameter = parameter, .lookups = held(kLookups, *parameter)};
    if (const ir::Value ids = held(kIds, *parameter)) {
      sum.rows = RowGradient{ids, held(kRows, *parameter)};
    } else {
      sum.gradient = accumulator_of(*parameter).in(graph);
    }
    sums.push_back(std::move(sum));
  }
  return sums;
}

}  // namespace tessera::nn
