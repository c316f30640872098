#include "tests/laws/train_step.h"

#include <memory>
#include <vector>

#include "tessera/nn/losses.h"
#include "tessera/nn/models/gpt.h"
#include "tessera/nn/models/models.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/session/trace.h"

namespace tessera::laws {

ir::Graph train_step(const std::string& network, int64_t batch) {
  std::unique_ptr<nn::Cell> cell;
  std::vector<session::InputSpec> inputs;
  if (network == "gpt") {
    constexpr int64_t kTokens = 8;
    cell = nn::gpt({.vocabulary = 10, .max_length = kTokens, .hidden_size = 16, .num_layers = 2, .num_heads = 2});
    inputs.push_back({"ids", {DType::kI32, {batch, kTokens}}});
    inputs.push_back({"label", {DType::kI32, {batch * kTokens}}});
  } else {
    const auto& model = nn::find_model(network);
    cell = model.make(10);
    for (auto& input : model.batch_inputs(batch)) {
      Shape& shape = input.type.shape;
      if (shape.ndim() == 4) shape[2] = shape[3] = 32;
      inputs.push_back({input.name, input.type});
    }
    inputs.push_back({"label", model.batch_labels(batch)});
  }
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  return session::trace_train_step(*cell, &loss, optimizer, inputs, {.training = true});
}

}  // namespace tessera::laws
