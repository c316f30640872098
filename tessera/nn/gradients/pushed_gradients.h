// Pushed gradients: what a worker gives to parameter servers that do not wait for the other workers. They leave its
// graph as results and enter the servers' update as data inputs of the same names: pushed_grads.<parameter>, of the
// parameter's shape; of a table of which the batch names the rows, pushed_ids.<parameter> and pushed_rows.<parameter>.
// Where an optimizer asks which rows were looked up, and the gradient is whole, pushed_lookups.<parameter>, f32 [rows].
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

// Adds the gradients to the graph's results. `tables`: parameters, by full name, that may be pushed by rows.
void push_gradients(ir::Graph& graph, std::span<const ParameterGradient> gradients, const Optimizer& optimizer,
                    const std::set<std::string>& tables);

// The gradients of these parameters, as the optimizer takes them, of data inputs that are named and typed as the
// results of `worker`, a graph that push_gradients() was called for.
std::vector<ParameterGradient> pushed_gradients(ir::Graph& graph, std::span<Parameter* const> parameters,
                                                const Optimizer& optimizer, const ir::Graph& worker);

// What such a result is.
struct PushedName {
  std::string parameter;
  bool is_by_rows = false;  // numbers of rows, or rows: of the whole table, not split as the parameter is
};
// Returns nullopt for any other name.
std::optional<PushedName> parse_pushed_name(std::string_view name);

}  // namespace tessera::nn
