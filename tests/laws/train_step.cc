#include "tests/laws/train_step.h"

#include <vector>

#include "tessera/nn/losses.h"
#include "tessera/nn/models/registry.h"
#include "tessera/nn/momentum.h"
#include "tessera/session/trace.h"

namespace tessera::laws {

ir::Graph train_step(const std::string& network, int64_t batch) {
  const auto& model = nn::find_model(network);
  const auto cell = model.make(10);
  Shape shape{batch};
  for (const int64_t size : model.input_shape) shape.push_back(size);
  if (shape.ndim() == 4) shape[2] = shape[3] = 32;
  const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, shape}}, {"label", {DType::kI32, Shape{batch}}}};
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  return session::trace_train_step(*cell, &loss, optimizer, inputs, {.training = true});
}

}  // namespace tessera::laws
