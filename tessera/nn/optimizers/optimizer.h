// Optimizer: turns gradients into graph nodes that update the parameters. Its states (moments, learning rate, step) are
// graph inputs and outputs named as the reference names them: moments.<param>, learning_rate, global_step, ...
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/parameter.h"

namespace tessera::nn {

struct ParameterGradient {
  const Parameter* parameter = nullptr;
  ir::Value gradient;
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
};

}  // namespace tessera::nn
