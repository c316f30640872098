// Optimizer: turns gradients into graph nodes that update the parameters. Its states (moments, learning rate, step) are
// graph inputs and outputs named as the reference names them: moments.<param>, learning_rate, global_step, ...
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/optimizers/row_gradient.h"
#include "tessera/nn/parameter.h"

namespace tessera::nn {

struct ParameterGradient {
  const Parameter* parameter = nullptr;
  ir::Value gradient;  // null where it is known by rows only
  // The same by rows, where the optimizer takes it so.
  std::optional<RowGradient> rows = std::nullopt;
  // How often each row was looked up, f32 [rows], where an optimizer asks for that and the gradient is whole; else
  // null.
  ir::Value lookups = {};
};

// Whether an optimizer updates rows of a parameter that were looked up by themselves.
enum class RowUpdates {
  kNever,  // a gradient of 0 changes a row, too
  kExact,  // the result is the same: a gradient of 0 changes nothing, but in steps in which all rows are updated
  kAlways  // rows that were not looked up stay, by the optimizer's definition
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Adds the update of every pair to the graph: states as inputs of kind kState, new values by assign.
  virtual void update(ir::Graph& graph, std::span<const ParameterGradient> gradients) = 0;
  // The states that update() reads for these parameters, with their initial values, in the order in which a checkpoint
  // lists them. Full names.
  virtual std::vector<Parameter> states(std::span<Parameter* const> parameters) const = 0;
  // What the names of the states begin with from here on; "" unless it is set. Two optimizers of one step need states
  // of their own: "discriminator." makes discriminator.global_step, discriminator.moments.<param>.
  virtual void set_state_prefix(const std::string& prefix) = 0;
  // "Momentum": by which a checkpoint says whose states it holds. "": it does not say.
  virtual std::string name() const { return {}; }
  // Whether ParameterGradient::rows may stand for a gradient.
  virtual RowUpdates row_updates(const Parameter&) const { return RowUpdates::kNever; }
  // The full name of the state that is the average of the parameter's values; "" where the optimizer keeps none.
  virtual std::string average_of(const Parameter&) const { return {}; }
  // That of the state, i32[1], which counts the updates that averages are made of: before the first they mean nothing.
  virtual std::string average_counter() const { return {}; }
};

// Whether the optimizer takes a gradient of so many rows by rows: where it must, or where that is less than all.
bool takes_rows(const Optimizer& optimizer, const Parameter& parameter, int64_t num_rows);

}  // namespace tessera::nn
