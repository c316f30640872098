#include "tessera/nn/optimizers/base_optimizer.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::nn {
namespace {

const Type kStepType{DType::kI32, {1}};
constexpr const char* kRateName = "learning_rate";

// Of a path: "beta" and "norm.gamma" are, "beta_head.weight" is not.
bool is_exempt_from_decay(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('.') + 1);
  return name == "beta" || name == "gamma";
}

// f64 networks are trained to compare results to more digits than f32 has; a rate rounded to f32 would spoil that.
template <typename Parameters>
DType scalar_dtype(const Parameters& parameters) {
  const bool has_f64 = std::ranges::any_of(parameters, [](const Parameter* p) { return p->type.dtype == DType::kF64; });
  return has_f64 ? DType::kF64 : DType::kF32;
}

// As apply_operator() has them: `value` where the row was looked up, else what was there.
ir::Value where_looked_up(const ir::Value& lookups, const ir::Value& value, const ir::Value& before) {
  Ints shape(static_cast<size_t>(value.ndim()), 1);
  shape[0] = value.shape()[0];
  return ops::select(ops::greater(ops::reshape(lookups, shape), 0), value, before);
}

}  // namespace

BaseOptimizer::BaseOptimizer(std::string name, OptimizerSettings settings)
    : name_(std::move(name)), settings_(std::move(settings)) {
  require_not_negative(name_, "weight_decay", settings_.weight_decay);
  require_positive(name_, "loss_scale", settings_.loss_scale);
  for (const auto& group : settings_.groups) {
    if (group.parameters.empty() && !group.matches) {
      throw InvalidArgument("{}: a parameter group needs parameters or a function that matches their names", name_);
    }
    if (group.weight_decay) require_not_negative(name_, "weight_decay", *group.weight_decay);
  }
}

void BaseOptimizer::update(ir::Graph& graph, std::span<const ParameterGradient> gradients) {
  const ir::SourceScope scope(graph, "optimizer");
  std::vector<const Parameter*> parameters;
  for (const auto& pair : gradients) parameters.push_back(pair.parameter);
  const DType scalar = scalar_dtype(parameters);
  const ir::Value step = global_step(graph);
  std::map<std::string, ir::Value> rates;
  for (const Parameter* parameter : parameters) {
    const auto group = group_of(*parameter);
    const auto name = rate_name(group);
    if (!rates.contains(name)) rates.emplace(name, read_rate(graph, group, scalar));
  }
  const auto shared = begin_step(graph, scalar);

  for (const auto& pair : gradients) {
    const Parameter& parameter = *pair.parameter;
    const auto group = group_of(parameter);
    const ir::Value value = parameter.in(graph);
    Update update{.parameter = parameter,
                  .value = value,
                  .gradient = {},
                  .rows = pair.rows,
                  .lookups = pair.lookups,
                  .learning_rate = scalar_for(parameter, rates.at(rate_name(group))),
                  .shared = shared,
                  .weight_decay = weight_decay_of(parameter, group),
                  .loss_scale = settings_.loss_scale};
    find_rows(pair.gradient, update);
    if (!update.rows) {
      update.gradient = pair.gradient ? ops::cast(pair.gradient, parameter.type.dtype) : ops::zeros_like(value);
    }
    add_update(update);
  }
  state("global_step", kStepType, 0).assign(ops::add(step, 1));
}

// Whoever made the gradient may not have asked for its rows.
void BaseOptimizer::find_rows(const ir::Value& gradient, Update& update) const {
  const RowUpdates kind = row_updates(update.parameter);
  if (!gradient || kind == RowUpdates::kNever || update.rows || update.lookups) return;
  const auto count = num_looked_up(gradient);
  if (count && takes_rows(*this, update.parameter, *count)) {
    update.rows = row_gradient_of(gradient);
  } else if (kind == RowUpdates::kAlways) {
    update.lookups = lookups_of(gradient).value_or(ir::Value());
  }
}

RowUpdates BaseOptimizer::row_updates(const Parameter& parameter) const {
  if (parameter.type.shape.ndim() == 0) return RowUpdates::kNever;
  const auto group = group_of(parameter);
  return kind_of_row_updates(parameter, weight_decay_of(parameter, group), rate_of(group).is_fixed());
}

void BaseOptimizer::apply_operator(const std::string& op, const Update& update, std::span<const Parameter> states,
                                   std::span<const ir::Value> more_scalars, const Attributes& attributes,
                                   const ir::Value& whole, bool keeps_states) {
  ir::Graph& graph = update.value.graph();
  std::vector<ir::Value> inputs{update.value};
  for (const Parameter& state : states) inputs.push_back(state.in(graph));
  const auto before = inputs;
  if (update.rows) {
    inputs.push_back(update.rows->ids);
    inputs.push_back(update.rows->rows);
  } else {
    inputs.push_back(update.gradient);
  }
  inputs.push_back(update.learning_rate);
  for (const ir::Value& scalar : more_scalars) inputs.push_back(scalar_for(update.parameter, scalar));
  std::vector<ir::Value> results;
  if (update.rows) {
    if (whole) inputs.push_back(whole);
    const auto settings = ops::complete_attributes(ops::OpRegistry::instance().get(op), attributes);
    results = ops::apply(graph, "update_rows", inputs,
                         {{"optimizer", op},
                          {"settings", settings.to_string()},
                          {"states", static_cast<int64_t>(states.size())},
                          {"may_be_whole", static_cast<bool>(whole)},
                          {"keeps_states", keeps_states}});
  } else {
    results = ops::apply(graph, op, inputs, attributes);
  }
  for (size_t i = 0; i < results.size() && update.lookups; ++i) {
    results[i] = where_looked_up(update.lookups, results[i], before[i]);
  }
  update.parameter.assign(results[0]);
  for (size_t i = 0; i < states.size(); ++i) states[i].assign(results[i + 1]);
}

std::vector<Parameter> BaseOptimizer::states(std::span<Parameter* const> parameters) const {
  const DType scalar = scalar_dtype(parameters);
  std::vector<bool> is_used(settings_.groups.size(), false);
  bool reads_common_rate = false;
  for (const Parameter* parameter : parameters) {
    const auto group = group_of(*parameter);
    if (group) is_used[*group] = true;
    reads_common_rate = reads_common_rate || !has_own_rate(group);
  }
  std::vector<Parameter> result = {state("global_step", kStepType, 0)};
  if (reads_common_rate && !settings_.learning_rate.schedule()) result.push_back(rate_state(std::nullopt, scalar));
  for (size_t i = 0; i < settings_.groups.size(); ++i) {
    if (!is_used[i]) throw InvalidArgument("{}: parameter group {} matches none of the parameters", name_, i);
    if (has_own_rate(i) && !rate_of(i).schedule()) result.push_back(rate_state(i, scalar));
  }
  for (auto& shared : shared_states(scalar)) result.push_back(std::move(shared));
  for (const auto& slot : number_slots()) {
    for (const Parameter* parameter : parameters) {
      result.push_back(number_of(*parameter, slot.prefix));
      result.back().init = constant(slot.initial_value);
    }
  }
  for (const auto& slot : slots()) {
    for (const Parameter* parameter : parameters) {
      result.push_back(slot_of(*parameter, slot));
      result.back().init = constant(initial_value(slot));
    }
  }
  return result;
}

ir::Value BaseOptimizer::decayed_gradient(const Update& update) {
  const DType dtype = at_least_f32(update.parameter.type.dtype);
  ir::Value gradient = ops::cast(update.gradient, dtype);
  if (update.loss_scale != 1) gradient = gradient / update.loss_scale;
  if (update.weight_decay != 0) gradient = gradient + ops::cast(update.value, dtype) * update.weight_decay;
  return gradient;
}

Parameter BaseOptimizer::slot_of(const Parameter& parameter, const std::string& slot) const {
  // Squared gradients underflow in half types.
  Parameter made =
      state(slot + "." + parameter.full_name(), {at_least_f32(parameter.type.dtype), parameter.type.shape}, 0);
  made.layerwise_parallel = parameter.layerwise_parallel;
  return made;
}

Parameter BaseOptimizer::number_of(const Parameter& parameter, const std::string& prefix) const {
  return state(prefix + parameter.full_name(), {at_least_f32(parameter.type.dtype), {}}, 0);
}

Parameter BaseOptimizer::state(const std::string& name, const Type& type, double value) const {
  return {.name = state_prefix_ + name,
          .type = type,
          .init = constant(value),
          .requires_grad = false,
          .kind = ir::InputKind::kState};
}

ir::Value BaseOptimizer::global_step(ir::Graph& graph) const { return state("global_step", kStepType, 0).in(graph); }

std::optional<size_t> BaseOptimizer::group_of(const Parameter& parameter) const {
  std::optional<size_t> found;
  const auto name = parameter.full_name();
  for (size_t i = 0; i < settings_.groups.size(); ++i) {
    const auto& group = settings_.groups[i];
    const bool is_listed = std::ranges::find(group.parameters, &parameter) != group.parameters.end();
    if (!is_listed && !(group.matches && group.matches(name))) continue;
    if (found) throw InvalidArgument("{}: parameter \"{}\" is in groups {} and {}", name_, name, *found, i);
    found = i;
  }
  return found;
}

double BaseOptimizer::weight_decay_of(const Parameter& parameter, std::optional<size_t> group) const {
  if (group) return settings_.groups[*group].weight_decay.value_or(settings_.weight_decay);
  return is_exempt_from_decay(parameter.full_name()) ? 0 : settings_.weight_decay;
}

bool BaseOptimizer::has_own_rate(std::optional<size_t> group) const {
  return group && settings_.groups[*group].learning_rate;
}

bool is_rate_table(const Parameter& state) {
  return state.kind == ir::InputKind::kState && state.full_name().starts_with(kRateName) &&
         state.type.shape.ndim() == 1;
}

std::string BaseOptimizer::rate_name(std::optional<size_t> group) const {
  return has_own_rate(group) ? fmt::format("{}_group_{}", kRateName, *group) : std::string(kRateName);
}

const LearningRate& BaseOptimizer::rate_of(std::optional<size_t> group) const {
  return has_own_rate(group) ? *settings_.groups[*group].learning_rate : settings_.learning_rate;
}

Parameter BaseOptimizer::rate_state(std::optional<size_t> group, DType scalar) const {
  const LearningRate& rate = rate_of(group);
  const std::string name = rate_name(group);
  if (rate.is_fixed()) return state(name, {scalar, {}}, rate.values()[0]);
  const Shape shape{static_cast<int64_t>(rate.values().size())};
  Parameter table = state(name, {scalar, shape}, 0);
  table.data = Tensor::of(shape, std::span<const double>(rate.values())).cast(scalar);
  return table;
}

ir::Value BaseOptimizer::read_rate(ir::Graph& graph, std::optional<size_t> group, DType scalar) const {
  if (const auto& schedule = rate_of(group).schedule()) {
    return ops::cast(ops::reshape(schedule(ops::reshape(global_step(graph), {})), {}), scalar);
  }
  const Parameter rate = rate_state(group, scalar);
  const ir::Value value = rate.in(graph);
  if (value.ndim() == 0) return value;
  // Steps after the table's end take its last entry.
  const ir::Value index = ops::minimum(global_step(graph), value.shape()[0] - 1);
  return ops::reshape(ops::gather(value, index), {});
}

bool takes_rows(const Optimizer& optimizer, const Parameter& parameter, int64_t num_rows) {
  switch (optimizer.row_updates(parameter)) {
    case RowUpdates::kNever: return false;
    case RowUpdates::kExact: return num_rows < parameter.type.shape[0];
    case RowUpdates::kAlways: return true;
  }
  return false;
}

ir::Value scalar_for(const Parameter& parameter, ir::Value scalar) {
  return ops::cast(scalar, parameter.type.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
}

}  // namespace tessera::nn
