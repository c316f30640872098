#include "tessera/nn/gradients/pushed_gradients.h"

#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

constexpr const char* kPushedGradient = "pushed_grads.";
constexpr const char* kPushedLookups = "pushed_lookups.";
constexpr const char* kPushedIds = "pushed_ids.";
constexpr const char* kPushedRows = "pushed_rows.";

}  // namespace

void push_gradients(ir::Graph& graph, std::span<const ParameterGradient> gradients, const Optimizer& optimizer,
                    const std::set<std::string>& tables) {
  for (const auto& pair : gradients) {
    const auto name = pair.parameter->full_name();
    if (tables.contains(name) && num_looked_up(pair.gradient) && looks_up_data_only(pair.gradient)) {
      const RowGradient rows = row_gradient_of(pair.gradient);
      graph.add_output(kPushedIds + name, rows.ids);
      graph.add_output(kPushedRows + name, rows.rows);
      continue;
    }
    graph.add_output(kPushedGradient + name, pair.gradient);
    if (optimizer.row_updates(*pair.parameter) != RowUpdates::kAlways) continue;
    if (const auto lookups = lookups_of(pair.gradient)) graph.add_output(kPushedLookups + name, *lookups);
  }
}

std::vector<ParameterGradient> pushed_gradients(ir::Graph& graph, std::span<Parameter* const> parameters,
                                                const Optimizer& optimizer, const ir::Graph& worker) {
  std::vector<ParameterGradient> gradients;
  const auto pushed = [&](const char* prefix, const Parameter& parameter) -> ir::Value {
    const ir::Output* output = worker.find_output(prefix + parameter.full_name());
    if (output == nullptr) return {};
    return graph.add_input(ir::InputKind::kInput, output->name, worker.type(output->value));
  };
  for (const Parameter* parameter : parameters) {
    ParameterGradient pair{.parameter = parameter, .gradient = pushed(kPushedGradient, *parameter)};
    pair.lookups = pushed(kPushedLookups, *parameter);
    if (const ir::Value ids = pushed(kPushedIds, *parameter)) {
      const ir::Value rows = pushed(kPushedRows, *parameter);
      if (takes_rows(optimizer, *parameter, ids.shape()[0])) {
        pair.rows = RowGradient{ids, rows};
      } else {
        pair.gradient = ops::scatter_add(ops::zeros_like(parameter->in(graph)), ids, rows);
      }
    }
    gradients.push_back(std::move(pair));
  }
  return gradients;
}

std::optional<PushedName> parse_pushed_name(std::string_view name) {
  for (const std::string_view prefix : {kPushedGradient, kPushedLookups, kPushedIds, kPushedRows}) {
    if (!name.starts_with(prefix)) continue;
    return PushedName{std::string(name.substr(prefix.size())), prefix == kPushedIds || prefix == kPushedRows};
  }
  return std::nullopt;
}

}  // namespace tessera::nn
